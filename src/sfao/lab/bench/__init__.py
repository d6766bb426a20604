"""The cost of a step: measured against SGD and the released code's loop."""
