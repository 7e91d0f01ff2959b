"""How to cite the software, and the paper of each model; a test compares it with CITATION.cff."""

from __future__ import annotations

__all__ = ["PAPERS", "SOFTWARE"]

SOFTWARE = (
    "The ethogram developers (2026). ethogram: Probabilistic models of sequential decision making, on numpyro and JAX. "
    "Version {version}."
)
PAPERS = {
    "RoleHMM": (
        "Le, Hoang M., Yue, Yisong, Carr, Peter, and Lucey, Patrick (2017). Coordinated Multi-Agent Imitation "
        "Learning. Proceedings of the 34th International Conference on Machine Learning. arXiv:1703.03121."
    ),
    "AgentMarkov": (
        "Unhelkar, Vaibhav V., and Shah, Julie A. (2019). Learning Models of Sequential Decision-Making with "
        "Partial Specification of Agent Behavior. Proceedings of the AAAI Conference on Artificial Intelligence 33(1), "
        "2522-2530."
    ),
    "NoisyMDP": (
        "Singh, Sumeetpal S., Chopin, Nicolas, and Whiteley, Nick (2012). Bayesian learning of noisy Markov decision "
        "processes. arXiv:1211.5901."
    ),
    "GPIRL": (
        "Levine, Sergey, Popovic, Zoran, and Koltun, Vladlen (2011). Nonlinear Inverse Reinforcement Learning with "
        "Gaussian Processes. Advances in Neural Information Processing Systems 24."
    ),
    "MarginalMAP": (
        "Cui, Hao, Marinescu, Radu, and Khardon, Roni (2018). From Stochastic Planning to Marginal MAP. "
        "Advances in Neural Information Processing Systems 31."
    ),
}
"""By class of the model."""
