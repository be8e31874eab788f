"""Does DyT lower rank and tail exponent, as the first paper says?"""
