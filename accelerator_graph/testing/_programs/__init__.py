"""Random programs: work on several streams, run eagerly and as graphs, with a model of the results."""
