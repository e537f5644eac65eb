"""What is found out by running an operator's source, in a process of its own."""
