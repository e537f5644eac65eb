"""Who came to stay: what the ward takes for an orphan."""

from __future__ import annotations

from tests.poison.ward import came_to_stay


def test_who_is_new_came_to_stay_unless_as_many_have_gone() -> None:
    assert came_to_stay({1, 2}, {1, 2}) == set()
    assert came_to_stay({1, 2, 3}, {1, 2}) == {3}
    assert came_to_stay({1, 3}, {1, 2}) == set(), "the next supervisor"
    assert came_to_stay({1, 3, 4}, {1, 2}) == {3, 4}, "the next supervisor, and one too many"
    assert came_to_stay({1}, {1, 2}) == set()
