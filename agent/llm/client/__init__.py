"""The client of the language model: one call is a reply, or a fault with a name, and never outlives its deadline."""
