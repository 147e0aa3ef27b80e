package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

func (a *app) slotCommand() *cobra.Command {
	cmd := settings.Group("slot", "Look at the slots of a running dispatcher", a.slotListCommand())
	cmd.Example = "  dispatcherd slot list"
	return cmd
}

func (a *app) slotListCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "list", Short: "List every slot with what it is doing", Args: settings.NoArguments,
		Example: "  dispatcherd slot list\n  dispatcherd slot list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Slots []api.Slot `json:"slots"`
			}
			if err := askDaemon(cmd.Context(), socket, "/v1/slots", &answer); err != nil {
				return err
			}
			if a.Format.JSON {
				return a.PrintJSON("slots", answer.Slots)
			}
			rows := make([][]string, len(answer.Slots))
			for i := range answer.Slots {
				rows[i] = slotRow(&answer.Slots[i])
			}
			return a.PrintTable([]string{"SLOT", "WORKER", "NUMBER", "STATE", "JOB", "TYPES"}, rows)
		},
	}
	cmd.Flags().StringVar(&socket, "api-socket", a.FindSocket("api.sock"), "the dispatcher's API socket")
	return cmd
}

func slotRow(s *api.Slot) []string {
	state, job := s.State, ""
	if s.Draining {
		state += ", draining"
	}
	if s.Job != 0 {
		job = fmt.Sprintf("%d (%s)", s.Job, s.JobType)
	}
	return []string{strconv.FormatInt(s.Slot, 10), s.Worker, strconv.Itoa(int(s.Number)), state, job, strings.Join(s.Types, ", ")}
}

// askDaemon fetches one answer from the API of the daemon behind socket.
func askDaemon(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := getFromDaemon(ctx, socket, path)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read
	return json.NewDecoder(body).Decode(into)
}

// getFromDaemon returns the body of a good answer. It must be closed.
func getFromDaemon(ctx context.Context, socket, path string) (io.ReadCloser, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://dispatcherd"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if errors.Is(err, fs.ErrPermission) {
		return nil, exit.Errorf(exit.Unavailable, "%s may not be opened by this user: %w; join the group of the dispatcher, or ask as its user", socket, err)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Unavailable, "no dispatcher answers on %s: %w; is it running, and is --api-socket right?", socket, err)
	}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = res.Body.Close() }() // it was read
		var problem api.Problem
		_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&problem) // the status says enough if this fails
		code := exit.Unavailable
		switch res.StatusCode {
		case http.StatusNotFound:
			code = exit.NotFound
		case http.StatusForbidden, http.StatusConflict:
			code = exit.Conflict
		}
		return nil, exit.Errorf(code, "the dispatcher on %s answered %s: %s", socket, res.Status, problem.Detail)
	}
	return res.Body, nil
}
