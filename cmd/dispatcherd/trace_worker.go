package main

import "github.com/spf13/cobra"

func (a *app) traceWorkerCommand() *cobra.Command { return &cobra.Command{Use: "worker"} }
