package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/client"
)

func ExampleMapLimit() {
	words := []string{"first", "second", "third"}
	loud, err := client.MapLimit(context.Background(), words, 2, func(_ context.Context, w string) (string, error) {
		return strings.ToUpper(w), nil
	})
	fmt.Println(loud, err)
	// Output: [FIRST SECOND THIRD] <nil>
}

func ExampleSemaphore() {
	ctx := context.Background()
	s := client.NewSemaphore(10)
	if err := s.Acquire(ctx, 4); err != nil {
		log.Fatal(err)
	}
	go s.Release(4)
	fmt.Println(s.Wait(ctx), s.Acquire(ctx, 11))
	// Output: <nil> a weight of 11 can never be admitted: give 1 to 10
}

// Somebody waits: run a job now, and know why not.
func ExampleClient_Do() {
	c, err := client.New(client.Options{Socket: "/run/dispatcherd/api.sock"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	result, err := c.Do(context.Background(), client.Request{
		Type: "pdf", Payload: map[string]int{"page": 1}, Timeout: 10 * time.Second,
	})
	var problem *client.Problem
	switch {
	case errors.As(err, &problem) && problem.Type == client.TypeJobFailed:
		log.Printf("the job failed: %s", problem.Detail)
	case err != nil:
		log.Print(err)
	default:
		log.Printf("%s", result)
	}
}

// Show progress while somebody waits.
func ExampleClient_Stream() {
	c, err := client.New(client.Options{Socket: "/run/dispatcherd/api.sock"})
	if err != nil {
		log.Fatal(err)
	}
	result, err := c.Stream(context.Background(), client.Request{Type: "pdf"}, func(e client.Event) error {
		log.Printf("%s %s", e.Name, e.Data)
		return nil
	})
	log.Printf("%s %v", result, err)
}

// The job exists when, and only when, the order does.
func ExampleInsertTx() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (item) VALUES ('book')`); err != nil {
			return err
		}
		_, err := client.InsertTx(ctx, tx, client.Job{Type: "invoice", Payload: map[string]string{"item": "book"}})
		return err
	})
	log.Print(err)
}

// The same with database/sql.
func ExampleInsertSQLTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err = client.InsertSQLTx(ctx, tx, client.Job{Type: "invoice"}); err == nil {
		err = tx.Commit()
	}
	log.Print(err)
}

func ExampleInsertMany() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	n, err := client.InsertMany(ctx, conn, func(yield func(client.Job) bool) {
		for page := range 100_000 {
			if !yield(client.Job{Type: "pdf", Payload: map[string]int{"page": page}}) {
				return
			}
		}
	})
	log.Print(n, err)
}
