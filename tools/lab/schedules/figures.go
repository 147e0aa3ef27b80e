package main

import "github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"

// Figures are those of a part, in their order.
type Figures = figure.Figures

func none(name string, value float64) figure.Figure { return figure.None(name, value) }
func atMost(name string, value, bound float64) figure.Figure {
	return figure.AtMost(name, value, bound)
}
func atLeast(name string, value, bound float64) figure.Figure {
	return figure.AtLeast(name, value, bound)
}
