"""What the warm-up finds: step size and mass, pooled over chains, by BlackJAX's adaptation in Stan's windows.

The step size follows the mean acceptance of all chains; variances are those of all chains' draws together. The mass
of shared parameters is the same at all agents; that of private ones each agent finds from its own draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.samplers.unison import Facts, Network, Unison

if TYPE_CHECKING:
    from consilience.samplers.transitions.replica import Replica

_FIRST_STEP_SIZE = 1.0
_PRIOR_DRAWS, _SHRINKAGE = 5, 1e-3
_DRAWS_PER_PARAMETER = 5  # in a window of the warm-up, for a dense mass

# BlackJAX makes arrays when it is imported, which starts JAX's devices and threads. So it is imported on first use,
# by `schedule`, outside of any traced function: a mesh sets up its devices before, and commands may be forked.


def mass_matrix_adaptation(is_diagonal: bool) -> Any:
    """BlackJAX's estimate of the mass, from draws."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation as made

    return made(is_diagonal)


def dual_averaging_adaptation(target: float) -> Any:
    """BlackJAX's search for the step size of an acceptance rate."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation as made

    return made(target)


class Adaptation(NamedTuple):
    """What is adapted."""

    step_size: Any
    """Of the next move."""
    inverse_mass: Any
    """`(d,)` or `(d, d)` of shared parameters."""
    own_inverse_mass: Any
    """`(agents here, p)` of private ones."""
    averaging: Any
    moments: Any
    own_moments: Any
    length: Any
    """What decides how long trajectories are."""


class Schedule(NamedTuple):
    """The windows of the warm-up, `(num_warmup,)` each."""

    slow: np.ndarray
    """Whether the draw counts for the mass."""
    ends: np.ndarray
    """Whether a window ends, and a new mass is taken."""


def schedule(num_warmup: int) -> Schedule:
    """Stan's windows: the step size alone, then windows of doubling length for the mass, then the step size again."""
    from blackjax.adaptation.window_adaptation import build_schedule

    stages = np.array(build_schedule(num_warmup), int).reshape(-1, 2)
    return Schedule(stages[:, 0] == 1, stages[:, 1] == 1)


def _mass(now: Adaptation) -> Any:
    """The estimate of the mass that fits the one in use."""
    return mass_matrix_adaptation(now.inverse_mass.ndim == 1)


def _strong(tree: Any) -> Any:
    """Arrays of definite types, so that a loop can carry them."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.result_type(leaf)), tree)


def first_adaptation(sampler: Unison, num_shared: int, own_shape: tuple[int, ...]) -> Adaptation:
    """Before the first move."""
    averaging = dual_averaging_adaptation(sampler.target_acceptance)[0](_FIRST_STEP_SIZE)
    moments = mass_matrix_adaptation(not sampler.has_dense_mass(num_shared))[0](num_shared)
    own = mass_matrix_adaptation(True)[0](int(np.prod(own_shape)))
    return _strong(
        Adaptation(
            jnp.asarray(_FIRST_STEP_SIZE), moments.inverse_mass_matrix, own.inverse_mass_matrix.reshape(own_shape),
            averaging, moments, own, sampler.length(num_shared, own_shape),
        )
    )  # fmt: skip


def adapted(sampler: Unison, windows: Schedule, step: Any, state: Replica, facts: Facts, network: Network) -> Replica:
    """The state after what is learnt from move number `step`; after the warm-up, the state as it is."""
    count = len(windows.slow)
    if count == 0:
        return state
    place = jnp.minimum(step, count - 1)
    slow, ends = jnp.asarray(windows.slow)[place], jnp.asarray(windows.ends)[place]

    def learn(state: Replica) -> Replica:
        now = _with_step_size(sampler, state.adaptation, facts)
        now = jax.lax.cond(slow, lambda one: _with_moments(one, state), lambda one: one, now)
        now = jax.lax.cond(ends, lambda one: _with_mass(sampler, one, network), lambda one: one, now)
        now = now._replace(
            step_size=jnp.where(step == count - 1, jnp.exp(now.averaging.log_step_size_avg), now.step_size)
        )
        anew = ends | (step == count - 1)
        grid = jax.lax.cond(anew, lambda: network.measure(state.shared, state.private)[0], lambda: state.grid)
        return state._replace(adaptation=now, grid=grid, sums=state.sums + anew.astype(state.sums.dtype))

    return jax.lax.cond(step < count, learn, lambda same: same, state)


def _with_step_size(sampler: Unison, now: Adaptation, facts: Facts) -> Adaptation:
    _, update, _ = dual_averaging_adaptation(sampler.target_acceptance)
    averaging = _strong(update(now.averaging, facts.acceptance_rate.mean()))
    return now._replace(averaging=averaging, step_size=jnp.exp(averaging.log_step_size))


def _with_moments(now: Adaptation, state: Replica) -> Adaptation:
    """Every chain's position counts."""
    update, update_own = _mass(now)[1], mass_matrix_adaptation(True)[1]

    def one_chain(carry: Any, positions: Any) -> tuple[Any, None]:
        return _strong((update(carry[0], positions[0]), update_own(carry[1], positions[1].reshape(-1)))), None

    carry, _ = jax.lax.scan(one_chain, (now.moments, now.own_moments), (state.shared, state.private))
    return now._replace(moments=carry[0], own_moments=carry[1])


def _with_mass(sampler: Unison, now: Adaptation, network: Network) -> Adaptation:
    """At the end of a window: the mass that it found; the step size is averaged anew."""
    restart, _, final = dual_averaging_adaptation(sampler.target_acceptance)
    moments = _strong(_mass(now)[2](now.moments))
    mass = _enough(shrunk(now.moments.wc_state), now.moments.wc_state.sample_size, now.inverse_mass)
    own = _strong(mass_matrix_adaptation(True)[2](now.own_moments))
    begun = own.wc_state._replace(mean=network.vary(own.wc_state.mean), m2=network.vary(own.wc_state.m2))
    averaging = _strong(restart(final(now.averaging)))
    return now._replace(
        step_size=jnp.exp(averaging.log_step_size),
        inverse_mass=mass,
        own_inverse_mass=shrunk(now.own_moments.wc_state).reshape(now.own_inverse_mass.shape),
        averaging=averaging,
        moments=moments,
        own_moments=own._replace(wc_state=begun),
        length=_strong(sampler.after_window(now.length)),
    )


def shrunk(moments: Any) -> Any:
    """Variances `(d,)` or a covariance `(d, d)` of `N` draws, shrunk as Stan does, but in units of their own:

        N/(N + 5) cov + 10⁻³ · 5/(N + 5) diag(cov)

    With Stan's 10⁻³ for every parameter, in whatever unit, strong correlations with small ones are lost: for an
    intercept and the slope of a calendar year an effective draw took 435 gradients, and so takes 6.
    """
    count = moments.sample_size
    spread = moments.m2 / jnp.maximum(count - 1, 1)
    variances = spread if spread.ndim == 1 else jnp.diag(spread)
    floor = _SHRINKAGE * jnp.where(variances > 0, variances, 1.0)  # of a parameter that has not moved, Stan's
    return (count * spread + _PRIOR_DRAWS * (floor if spread.ndim == 1 else jnp.diag(floor))) / (count + _PRIOR_DRAWS)


def _enough(mass: Any, num_draws: Any, before: Any) -> Any:
    """The mass that a window found; a dense one has the correlations of that before, if there were too few draws."""
    if mass.ndim == 1:
        return mass
    change = jnp.sqrt(jnp.diag(mass) / jnp.diag(before))
    return jnp.where(num_draws >= _DRAWS_PER_PARAMETER * len(mass), mass, change[:, None] * before * change)
