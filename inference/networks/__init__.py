"""Marginal MAP: the solver, its methods, and what they are made of.

Files in reading order, each after those that it builds on.

The solver: `solve_mmap` is the entry point and has the table of methods; `anytime` has the clock, the incumbent, and
what a method is given.

Exact: `zero_propagation` makes factors of a query and removes impossible states; `parity_checks` has the linear
equations between binary variables, and substitutes them; `products` multiplies factors and sums variables out;
`elimination` plans and carries out bucket elimination; `bucket_tree` updates sums as an assignment changes;
`exact_queries` has posteriors of single variables, the k best answers and all single flips.

Bounds and proofs: `mini_bucket_plan` shares factors out, `weighted_mini_buckets` bounds and tightens,
`branch_and_bound` searches under the bound, `staged_search` runs both in small steps.

Search: `large_neighbourhood_search` climbs; `explanations` finds the MPE by it; where sums are out of reach,
`estimated_flips` climbs by belief propagation and `certified_answers` compares answers; `hybrid`, the default method,
joins search and proof; `methods` has the others.

Forward marginals and AGS: `forward_layout` lays a query out as arrays, `forward_marginals` has the surrogate and its
gradient, `forward_value` the same as a function of weights and tables; `ags` is the ascent.
`mixed_product` is message passing.

Samples and feasibility: `samples` draws one sample that satisfies the evidence or many at once; `conflict_search` finds
possible assignments or proves that there are none.
"""

from ethogram.inference.networks.ags import Vertices, ascend
from ethogram.inference.networks.anytime import TracePoint
from ethogram.inference.networks.elimination import (
    ExactAnswer,
    WidthError,
    exact_log_probability,
    exact_map,
)
from ethogram.inference.networks.exact_queries import (
    RankedAssignment,
    VariablePosteriors,
    best_assignments,
    single_flips,
    variable_posteriors,
)
from ethogram.inference.networks.forward_value import forward_value
from ethogram.inference.networks.mixed_product import smoothed_tables
from ethogram.inference.networks.solve_mmap import ImpossibleEvidenceError, MarginalMAPResult, solve_mmap

__all__ = [
    "ExactAnswer",
    "ImpossibleEvidenceError",
    "MarginalMAPResult",
    "RankedAssignment",
    "TracePoint",
    "VariablePosteriors",
    "Vertices",
    "WidthError",
    "ascend",
    "best_assignments",
    "exact_log_probability",
    "exact_map",
    "forward_value",
    "single_flips",
    "smoothed_tables",
    "solve_mmap",
    "variable_posteriors",
]
