"""Does DyT's low-data win survive when each arm is judged at its own best checkpoint?"""
