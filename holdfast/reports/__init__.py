"""Pictures and pages made from splits and runs."""
