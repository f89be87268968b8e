"""What models of cost choose for machines that are described, beside what a simulated core finds best."""
