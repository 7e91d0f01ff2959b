"""The number of BLAS threads while fits overlap, and after them."""

import threading

from threadpoolctl import threadpool_info

from ethogram.inference.rewards.blas_threads import one_blas_thread


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_has_as_many_threads_as_before_when_the_last_of_two_fits_has_ended():
    """Each restored what it had found: the second to begin one thread, for the rest of the process."""
    before, begun, ended = blas_threads(), threading.Event(), threading.Event()

    def first():
        with one_blas_thread():
            begun.set()
            ended.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(10)
    with one_blas_thread():
        ended.set()
        thread.join()
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before
    with one_blas_thread():
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before
