"""What a step costs: measured against SGD and the released code's loop, and predicted before anything runs."""
