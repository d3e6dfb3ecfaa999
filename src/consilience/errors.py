"""Every exception that Consilience raises, in one tree.

    ConsilienceError
    ├── InputError            what the user gave cannot be used (also a ValueError)
    │   ├── GraphError        disconnected, directed, bad weights
    │   ├── ScheduleError     a step-size sequence that is not one
    │   ├── ProblemError      shards, likelihood, prior or initial value
    │   ├── PlanError         a plan with unknown, missing or contradicting entries
    │   │   └── UnstableError a plan whose dynamics cannot stay bounded
    │   ├── DataError         a data set that is missing, damaged or not what it should be
    │   ├── NetworkError      a node's settings, certificates, neighbours or endpoints
    │   │   └── SumError      sums, or the states that agents start from, that do not fit together
    │   ├── MeshError         devices or processes that do not fit together
    │   ├── ConditionError    parameters that a theorem does not speak about
    │   └── RunError          a directory that is not the run it should be
    ├── DivergedError         a position became infinite or not a number
    ├── StorageError          the disk refused to take what was sampled
    ├── ProcessLostError      another process of a mesh is gone; the run can be resumed
    ├── CheckpointError       no checkpoint can be read
    ├── Retry                 agents took different decisions in a draw; all repeat it
    │   └── Disagreement      … and this agent found it out
    ├── Stopped               a node was told to stop while it waited for others
    └── Interrupted           the user stopped the run; it can be resumed

A message says what was expected, what was received and what to do.
"""


class ConsilienceError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(ConsilienceError, ValueError):
    """The user's input cannot be used; the message says how to mend it."""


class GraphError(InputError):
    """The graph is not a connected undirected graph with positive weights."""


class ScheduleError(InputError):
    """The step-size sequence is not positive or not defined."""


class ProblemError(InputError):
    """The problem's data, likelihood, prior or initial value cannot be used."""


class PlanError(InputError):
    """The plan has an entry that is unknown, missing or contradicts another."""


class UnstableError(PlanError):
    """The plan's step sizes make the dynamics diverge."""


class DataError(InputError):
    """A data set is missing, damaged, or not what it should be."""


class NetworkError(InputError):
    """A node cannot take part in its network as it is set up."""


class SumError(NetworkError):
    """Agents that must compute the same do not: other states, other sizes, or a sum that does not check."""


class MeshError(InputError):
    """The devices or processes of a mesh do not fit together, or cannot reach each other."""


class ConditionError(InputError):
    """The parameters do not meet a condition of the theorem that was asked for."""


class RunError(InputError):
    """The directory does not hold the run that was expected there."""


class DivergedError(ConsilienceError):
    """A position became infinite or not a number while sampling."""


class StorageError(ConsilienceError):
    """A run's directory could not be written."""


class ProcessLostError(ConsilienceError):
    """A process that sampled together with others was lost."""


class CheckpointError(ConsilienceError):
    """No usable checkpoint was found."""


class Retry(ConsilienceError):  # noqa: N818 - it is no error
    """All agents go back to the start of a draw and repeat it, as another attempt.

    Attributes:
        draw: to whose start the agents go back.
        attempt: how many times agents have gone back by then, in the whole epoch.
    """

    def __init__(self, draw: int, attempt: int, why: str = "agents took different decisions") -> None:
        super().__init__(f"{why}: all repeat draw {draw:,} (attempt {attempt:,})")
        self.draw, self.attempt = draw, attempt


class Disagreement(Retry):
    """This agent found that another took different decisions; it has told all to repeat the draw."""


class NewEpoch(ConsilienceError):  # noqa: N818 - it is no error
    """Agents were lost or are back: all agree on who takes part before they continue."""


class Stopped(ConsilienceError):  # noqa: N818 - it is no error
    """A node was told to stop while it waited for others."""


class Interrupted(ConsilienceError):  # noqa: N818 - it is no error
    """The user stopped the run; it can be resumed."""


class SamplingWarning(UserWarning):
    """The run continues, but its draws deserve a look."""


class PlanWarning(UserWarning):
    """The plan can run, but something about it (`topic`) deserves a look."""

    def __init__(self, text: str, topic: str) -> None:
        super().__init__(text)
        self.topic = topic
