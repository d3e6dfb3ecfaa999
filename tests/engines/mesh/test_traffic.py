"""What a device sends, read from compiled programs: all collective operations, as often as they happen."""

from consilience.engines.mesh.traffic import traffic_of

PROGRAM = """
%sum (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}
%one_agent (p: (s32[], f32[30])) -> (s32[], f32[30]) {
  %whole = f32[60]{0} all-gather(%slice), replica_groups={{0,1},{2,3}}, dimensions={0}
  %part = f32[30]{0} reduce-scatter(%whole), replica_groups=[2,2]<=[4], dimensions={0}, to_apply=%sum
}
%step (p: (s32[], f32[3,30])) -> (s32[], f32[3,30]) {
  %sent = (f64[5], f64[5]) collective-permute-start(%p), source_target_pairs={{0,2},{2,0}}
  %agents = (s32[], f32[30]) while(%t), body=%one_agent, backend_config={"known_trip_count":{"n":"3"}}
}
ENTRY %main (p: f32[3,30]) -> f32[3,30] {
  %steps = (s32[], f32[3,30]) while(%t), condition=%more, body=%step
  %error = f32[2,30]{1,0} all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%sum
}
"""


def test_every_operation_counts_as_often_as_its_loop_turns():
    found = traffic_of(PROGRAM)
    assert found.bytes == {
        "collective-permute": 40, "all-gather": 3 * 120, "reduce-scatter": 3 * 120, "all-reduce": 2 * 240 * 3 // 4
    }  # fmt: skip
    assert found.messages == {"collective-permute": 1, "all-gather": 3, "reduce-scatter": 3, "all-reduce": 4}
