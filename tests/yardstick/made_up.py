"""What tests of the table share: a request, a row that took no time, and a table that is completed silently."""

from consilience.yardstick import Request, complete_table

SCHOOLS, SURVEY = "eight_schools-eight_schools_noncentered", "mesquite-logmesquite"
ROW = {
    "mean_error": 0.02, "mean_error_beyond_noise": 0.0, "worst_parameter": "mu", "sd_ratio_smallest": 0.99,
    "sd_ratio_largest": 1.02, "sd_error_beyond_noise": 0.0, "tail_error": 0.01, "ess_mean": 6000.0,
    "ess_square": 5500.0, "rounds_per_effective_mean": 20.0, "rounds_per_effective_square": 22.0,
    "bytes_per_effective_mean": 800.0, "gradients_per_effective_mean": 5.0, "rounds": 9000, "warmup_rounds": 700,
    "divergences": 0, "converged": True, "verdict": "Converged", "sampler": "a sampler", "chains": 4, "draws": 2000,
    "run": "run",
}  # fmt: skip


def request(**given):
    return Request.of(**{"posteriors": (SURVEY,), "methods": ("nuts", "dula", "one-shot"), **given})


def complete(path, begun=None):
    def announce(missing):
        return lambda number, cell: None if begun is None else begun(number, cell)

    return complete_table(path, lambda plan: None, announce)
