package stage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Controller returns the place of the daemon that is the controller; -1 = none.
func (s *Stage) Controller(ctx context.Context) (int, error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return -1, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var name string
	err = conn.QueryRow(ctx, `SELECT d.name FROM dispatcherd.controller c JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher
		WHERE d.lost_at IS NULL AND NOT d.leaving`).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	for i, d := range s.Daemons {
		if d.Name == name {
			return i, err
		}
	}
	return -1, err
}

var errController = errors.New("the first daemon has not become the controller within 30 s")

// awaitController waits until one of the daemons so far is the controller.
func (s *Stage) awaitController(ctx context.Context) error {
	for begun := time.Now(); time.Since(begun) < 30*time.Second; {
		found, err := s.Controller(ctx)
		if err != nil || found >= 0 {
			return err
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errController
}
