"""Does the 95 % interval of a tail exponent hold the truth, and does pure noise pass for heavy-tailed?"""
