"""What others already have, as climbable cases."""
