"""What takes a model's time, and its operators as files of their own. Decides nothing."""
