"""One run of a subscription: intake, compute, plan and commit of its batches."""
