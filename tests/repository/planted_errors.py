"""Planted errors: realistic slips in the product, each of which the fast tests must notice.

    python tests/repository/planted_errors.py [NAME ...] [--list] [--tier fast|both] [--all-tests]

plants one at a time in a copy of the working tree and runs the nearest tests there. It exits with 1 where a text is no
longer in its file, fewer than 30 of the errors are caught by the fast tier, or, with ``--tier both``, one by neither.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENOUGH = 30
PYTEST = "-m pytest -x -q -n 0 -p no:cacheprovider"
TIERS = {"fast": "not slow and not optimised", "slow": "slow", "optimised": "optimised"}
EVERYTHING = "tests --ignore=tests/repository"  # which looks at the text of files, not at what they do


class Planted(NamedTuple):
    """An error: a text that occurs once in a file, and what takes its place."""

    name: str
    system: str
    file: str
    text: str
    replacement: str
    places: str  # files or folders of tests, run one after the other until one fails

    def tests(self) -> list[str]:
        """Paths of the tests."""
        return [f"tests/{place}" for place in self.places.split()]

    def planted_in(self, text: str) -> str:
        """The text of the file with the error."""
        return text.replace(self.text, self.replacement)


# fmt: off
PLANTED = (
    # wrong normaliser: K! / A! in place of K! / (K - A)!
    Planted("number_of_maps", "roles", "models/roles/per_sequence.py",
            "math.lgamma(num_roles + 1) - math.lgamma(num_roles - num_agents + 1)",
            "math.lgamma(num_roles + 1) - math.lgamma(num_agents + 1)",
            "models/roles/test_per_sequence.py models/roles"),
    # the last transition leads into padding, and its shift counts
    Planted("padding_in_evidence", "roles", "models/chains/forward_backward.py",
            "shifts = jnp.where(alive[1:], transition_shift",
            "shifts = jnp.where(alive[:-1], transition_shift",
            "models/chains/test_markov_chain.py models/chains"),
    # the constant of a Gaussian counts features that are missing
    Planted("missing_features_normalised", "roles", "models/emissions/missing_features.py",
            "math.log(2 * math.pi) * jnp.sum(~missing, axis=-1)",
            "math.log(2 * math.pi) * missing.shape[-1]",
            "models/emissions/test_missing_features.py models/emissions"),
    # the precision of q in place of that of p
    Planted("strength_in_divergence", "roles", "models/families/matrix_normal_inverse_wishart.py",
            "product(solve(factor, gap), root0) ** 2",
            "product(solve(factor, gap), root) ** 2",
            "models/families/test_normal_inverse_wishart.py models/families"),
    Planted("last_restart_is_best", "roles", "inference/conjugate/ascent.py",
            "return np.argsort(-np.where(np.isnan(elbo), -np.inf, elbo), kind=\"stable\")",
            "return np.arange(len(elbo))[::-1]",
            "inference/conjugate/test_conjugate_svi.py inference/conjugate"),
    # frames beyond the end of a demonstration are team-frames
    Planted("padding_in_duplicates", "roles", "inference/roles/alignment.py",
            "(holders > 1).any(axis=2).sum() / team_frames.sum()",
            "(holders > 1).any(axis=2).sum() / team_frames.size",
            "inference/roles/test_alignment.py inference/roles"),
    # rows that never switch inform the weights (dropped mask)
    Planted("never_rows_count", "intents", "models/intents/row_counts.py",
            'jnp.where(never[:, None], 0, counts["transition"].reshape(-1, size)[:last, :-1])',
            'counts["transition"].reshape(-1, size)[:last, :-1]',
            "models/intents/test_stickiness.py models/intents inference/intents"),
    # the exponent of a Beta density without its -1
    Planted("density_of_sticks", "intents", "models/intents/stick_weights.py",
            "return (self.gamma - 1) * jnp.log(self.natural[-1])",
            "return self.gamma * jnp.log(self.natural[-1])",
            "models/intents/test_stick_weights.py models/intents"),
    # dropped from the objective, not from the step
    Planted("stickiness_prior", "intents", "models/intents/stickiness.py",
            "return jnp.sum(gained) + from_held + prior, jnp.log(",
            "return jnp.sum(gained) + from_held + 0 * prior, jnp.log(",
            "models/intents/test_stickiness.py models/intents"),
    # an edit is kept whatever it does to the ELBO
    Planted("edits_that_lose", "intents", "inference/conjugate/search.py",
            "return bool(elbo > base + least * size_of(np.asarray(base), problem.frames))",
            "return bool(np.isfinite(elbo))",
            "inference/conjugate/test_search.py inference/conjugate inference/intents"),
    # forgets as a mean does, not as a variance (wrong exponent)
    Planted("variance_of_surprise", "intents", "inference/intents/intent_belief.py",
            "variance = decay**2 * belief.variance",
            "variance = decay * belief.variance",
            "inference/intents/test_intent_belief.py inference/intents"),
    # the permutation in place of its inverse: the same for two labels
    Planted("inverse_of_labels", "intents", "inference/export/pointwise.py",
            "return np.argsort(optimal_assignment(-overlap).role, axis=-1)",
            "return optimal_assignment(-overlap).role",
            "inference/intents/test_arviz_agents.py inference/export"),
    # half of one translation in place of one per decision, as printed
    Planted("haar_shape", "choices", "inference/choices/gibbs_sweep.py",
            'levels = jnp.any(counts > 0, axis=-1) if move.translations == "one" else counts > 0',
            "levels = jnp.any(counts > 0, axis=-1)",
            "inference/choices/test_gibbs_sweep.py inference/choices"),
    # ratios to a density that is not that of the draws
    Planted("weights_of_draws", "choices", "inference/choices/laplace.py",
            "log_weights + expansion.constant + change - expansion.predicted(draws[\"theta\"])",
            "log_weights + expansion.constant + change",
            "inference/choices/test_laplace.py inference/choices"),
    # both sides alike, whatever their spread
    Planted("side_of_envelope", "choices", "inference/choices/latent_utilities.py",
            "dtype) < left / (left + right)",
            "dtype) < 0.5",
            "inference/choices/test_latent_utilities.py inference/choices"),
    # options that are not legal compete
    Planted("illegal_rivals", "choices", "models/choices/probit_choice.py",
            "cdf = jnp.where(legal, jnp.where(at < 0, beyond, 1 - beyond), 1)",
            "cdf = jnp.where(at < 0, beyond, 1 - beyond)",
            "models/choices/test_probit_choice.py models/choices"),
    # that of the values in place of their own
    Planted("variance_of_action_rewards", "choices", "models/choices/noisy_mdp.py",
            'own = self.action_rewards if self.rewards == "own" else kappa',
            'own = self.action_rewards if self.rewards == "shared" else kappa',
            "models/choices/test_noisy_mdp.py models/choices"),
    # the derivative lacks the factor of the utilities
    Planted("discount_in_effects", "choices", "inference/choices/effects.py",
            "value = value * model.beta",
            "value = value * 1",
            "inference/choices/test_effects.py inference/choices"),
    # (current, last) in place of (last, current)
    Planted("pairs_of_history", "rewards", "models/mdps/history.py",
            "pairs[last, now]",
            "pairs[now, last]",
            "models/mdps/test_history.py models/mdps"),
    # wrong exponent
    Planted("discount_in_curvature", "rewards", "models/mdps/soft_curvature.py",
            "policy, mdp.discount**2 * visits)",
            "policy, mdp.discount * visits)",
            "models/mdps/test_soft_curvature.py models/mdps"),
    # half of it, as in front of the distances
    Planted("noise_in_kernel", "rewards", "models/rewards/kernel.py",
            "_distances(features, others, relevance) - noise * jnp.sum(relevance))",
            "_distances(features, others, relevance) - 0.5 * noise * jnp.sum(relevance))",
            "models/rewards/test_gp_irl.py models/rewards inference/rewards"),
    # the density of the hyper-parameters in place of that of their logarithms
    Planted("hyper_jacobian", "rewards", "inference/rewards/hyper_parameters.py",
            "total = jnp.sum(log_hyper, -1)",
            "total = jnp.zeros(log_hyper.shape[:-1], log_hyper.dtype)",
            "inference/rewards/test_reward_gradients.py inference/rewards"),
    # all steps of a search have the same draws (key reused)
    Planted("draws_of_every_step", "rewards", "inference/rewards/gaussian_vi.py",
            "numpy_generator(key, state.steps)",
            "numpy_generator(key)",
            "inference/rewards/test_fit_settings.py inference/rewards"),
    # shares of traces beside shares of steps
    Planted("first_states_per_trace", "rewards", "inference/rewards/max_entropy.py",
            "return visited / total, entering / total",
            "return visited / total, entering / entering.sum()",
            "inference/rewards/test_max_entropy.py inference/rewards"),
    # the last of equal states in place of the first
    Planted("ties_of_weights", "networks", "inference/networks/ags.py",
            "jnp.where(weights[:, state] > largest, state + 1, vertex)",
            "jnp.where(weights[:, state] >= largest, state + 1, vertex)",
            "inference/networks/test_ags.py inference/networks"),
    # a new climb is compared with the best of the last one
    Planted("stale_climb", "networks", "inference/networks/ags.py",
            "climb_value=jnp.where(converged, -jnp.inf, climbers.climb_value),",
            "climb_value=climbers.climb_value,",
            "inference/networks/test_ags.py inference/networks"),
    # the weight that the first state loses is left out
    Planted("gradient_of_first_state", "networks", "inference/networks/forward_marginals.py",
            "direct = (own - rest[:, None]) * slope[:, None]",
            "direct = own * slope[:, None]",
            "inference/networks/test_forward_marginals.py inference/networks"),
    # wrong direction: a proof is closed too early
    Planted("smallest_open_bound", "networks", "inference/networks/branch_and_bound.py",
            "still_open = max((-pool[0][0] for pool in self._open if pool), default=-math.inf)",
            "still_open = min((-pool[0][0] for pool in self._open if pool), default=-math.inf)",
            "inference/networks/test_branch_and_bound.py inference/networks"),
    # what a long product was divided by is lost
    Planted("scale_of_products", "networks", "inference/networks/products.py",
            "return Message(found, log_scale + math.log(scale) if scale",
            "return Message(found, math.log(scale) if scale",
            "inference/networks/test_elimination.py inference/networks"),
    # counted once a cause
    Planted("leak_of_every_cause", "networks", "models/networks/noisy_or.py",
            "none = np.stack((alone, np.zeros(2))) if before",
            "none = np.stack((quiet[0] * alone, np.zeros(2))) if before",
            "models/networks/test_noisy_or.py models/networks"),
    # one reward after the end
    Planted("steps_left", "planning", "inference/planning/rollout_marginals.py",
            "(jnp.arange(count) < steps_left)",
            "(jnp.arange(count) <= steps_left)",
            "inference/planning/test_rollout_marginals.py inference/planning"),
    Planted("latest_plan_is_best", "planning", "inference/planning/sogbofa.py",
            "if np.isfinite(values[at]) and values[at] > self.value:",
            "if np.isfinite(values[at]):",
            "inference/planning/test_sogbofa.py inference/planning"),
    # of the roll-out, where positions begin anew at the truth (stale state)
    Planted("memory_after_truth", "imitation", "inference/imitation/motion.py",
            "memory = jnp.where(sync, true_memory, memory)",
            "memory = jnp.where(sync, memory, memory)",
            "inference/imitation/test_motion.py inference/imitation"),
    # roll-outs of the first round are too long
    Planted("lengths_of_segments", "imitation", "inference/imitation/imitate.py",
            "round((run.horizon - 1) * (number - 1) / max(run.rounds - 1, 1))",
            "round((run.horizon - 1) * number / run.rounds)",
            "inference/imitation/test_imitate.py inference/imitation"),
)
# fmt: on


def faults(root: Path = ROOT) -> list[str]:
    """What is wrong with the list: texts that are not in their file exactly once, and tests that are gone."""
    found = []
    for each in PLANTED:
        count = (root / each.file).read_text(encoding="utf-8").count(each.text)
        if count != 1:
            found.append(f"{each.name}: {each.file} has {each.text!r} {count} times, not once")
        found += [f"{each.name}: no {where}" for where in each.tests() if not (root / where).exists()]
    return found


class Copy:
    """A copy of the working tree, in which errors are planted and tests run."""

    def __init__(self, folder: Path):
        self.folder, self.plants = folder, 0
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists() or (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def remove_bytecode(self) -> None:
        """Bytecode of the copy, which nothing will read again, goes from the cache."""
        cache = Path(os.environ.get("ETHOGRAM_CI_CACHE", Path.home() / ".cache" / "ethogram" / "tests"))
        shutil.rmtree(cache / "bytecode" / self.folder.relative_to("/"), ignore_errors=True)

    def write(self, file: str, text: str) -> None:
        """Write a file at a time of its own: bytecode counts as fresh by its size and seconds."""
        self.plants += 1
        (self.folder / file).write_text(text, encoding="utf-8")
        os.utime(self.folder / file, times=(1e9 + self.plants, 1e9 + self.plants))

    def run(self, *arguments: str) -> tuple[str, float]:
        """The first test that fails ("" where all pass), and CPU seconds."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src")}
        environment.setdefault("ETHOGRAM_DATA", str(ROOT.parent / "shared" / "data"))
        command = [sys.executable, *PYTEST.split(), *arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 5) and not failed:  # 5: no test of this tier is there
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return (failed[1] if failed else ""), seconds

    def caught(self, each: Planted, tiers: list[str], all_tests: bool) -> tuple[str, str, float]:
        """Tier and test that catch an error, both empty where it is missed, and CPU seconds."""
        original, spent = (self.folder / each.file).read_text(encoding="utf-8"), 0.0
        self.write(each.file, each.planted_in(original))
        try:
            for tier in tiers:
                for stage in (*each.tests(), *[EVERYTHING] * all_tests):
                    failed, seconds = self.run(*stage.split(), "-m", TIERS[tier])
                    spent += seconds
                    if failed:
                        return tier, failed, spent
        finally:
            self.write(each.file, original)
        return "", "", spent


def main() -> int:
    """Plant the errors that are named, or all, and print what catches each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="errors to plant; all by default")
    parser.add_argument("--list", action="store_true", help="print the errors and plant none")
    parser.add_argument("--tier", choices=("fast", "both"), default="fast", help="of the tests that are run")
    parser.add_argument("--all-tests", action="store_true", help="run all where the nearest tests pass")
    options = parser.parse_args()
    if unknown := set(options.names) - {each.name for each in PLANTED}:
        parser.error(f"no error is called {', '.join(sorted(unknown))}: see --list")
    if stale := faults():
        print(*stale, sep="\n")
        return 1
    chosen = [each for each in PLANTED if not options.names or each.name in options.names]
    if options.list:
        for each in chosen:
            print(f"{each.name:28} {each.system:10} {each.file}\n  - {each.text}\n  + {each.replacement}")
        return 0
    tiers = list(TIERS) if options.tier == "both" else ["fast"]
    found: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for each in chosen:
            tier, test, seconds = copy.caught(each, tiers, options.all_tests)
            found[each.name] = tier, test
            row = f"{each.name:28} {each.system:10} {tier:5} {test or 'MISSED':90} {seconds:6.1f}"
            print(row, flush=True)
        # A test that fails without any error catches nothing.
        for tier in tiers:
            tests = sorted({test for by, test in found.values() if by == tier})
            failed, _ = copy.run(*tests, "-m", TIERS[tier]) if tests else ("", 0.0)
            if failed:
                print(f"{failed} fails without an error too")
                return 1
        copy.remove_bytecode()
    fast = sum(tier == "fast" for tier, _ in found.values())
    missed = sum(not tier for tier, _ in found.values())
    print(f"{fast} of {len(chosen)} caught by the fast tier, {missed} missed")
    return int(fast < min(ENOUGH, len(chosen)) or (options.tier == "both" and missed > 0))


if __name__ == "__main__":
    sys.exit(main())
