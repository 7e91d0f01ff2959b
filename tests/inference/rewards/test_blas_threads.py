"""The number of BLAS threads while fits overlap, and after them."""

from threadpoolctl import threadpool_info

from ethogram.inference.rewards.blas_threads import one_blas_thread


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_has_as_many_threads_as_before_when_the_last_of_two_has_ended():
    """Each restored what it had found: the second to begin one thread, for the rest of the process."""
    before = blas_threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) <= {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
