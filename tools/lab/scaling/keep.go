package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/chart"
)

// keep writes the picture of a curve to docs/explanation/bench/NAME.svg.
func (s *study) keep(name string, panels ...chart.Panel) error {
	path := filepath.Join(s.rig.Root, "docs", "explanation", "bench", name+".svg")
	if err := os.WriteFile(path, []byte(chart.SVG(panels...)), 0o644); err != nil {
		return fmt.Errorf("keeping the picture: %w", err)
	}
	return nil
}
