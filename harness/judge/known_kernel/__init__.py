"""A workspace of the lab's own, run like a candidate where a GPU must show that it is still in its senses."""
