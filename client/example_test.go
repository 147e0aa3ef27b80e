package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
)

// Run a job now, and handle each kind of error.
func ExampleClient_Do() {
	url, leave := fakeDispatcher()
	c, err := client.New(client.Options{URL: url}) // or Socket: "/run/dispatcherd/api.sock"
	if err != nil {
		log.Fatal(err)
	}
	defer leave()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, typ := range []string{"pdf", "torn", "excel", "gone"} {
		result, err := c.Do(ctx, client.Request{Type: typ, Payload: map[string]int{"page": 1}, Timeout: 10 * time.Second})
		var problem *client.Problem
		switch {
		case err == nil:
			fmt.Printf("%s: %s\n", typ, result)
		case errors.As(err, &problem) && problem.Type == client.TypeJobFailed:
			fmt.Println(typ, "failed:", problem.Detail)
		case errors.As(err, &problem) && problem.RetryAfter() > 0:
			fmt.Println(typ, "did not start; again in", problem.RetryAfter())
		case errors.As(err, &problem):
			log.Print(err) // the request was rejected, or its deadline passed
		case errors.Is(err, client.ErrUnknownOutcome):
			fmt.Println(typ, "may have run; only a Durable request with an IdempotencyKey may be repeated")
		default:
			log.Print(err) // ctx ended, or the request was not sent
		}
	}
	// Output:
	// pdf: {"pages":1}
	// torn failed: the page is torn
	// excel did not start; again in 1s
	// gone may have run; only a Durable request with an IdempotencyKey may be repeated
}

// Show progress while a caller waits.
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

// fakeDispatcher is a dispatcher with one running job, 17.
func fakeDispatcher() (url string, leave func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			answerRequest(w, r)
			return
		}
		if r.Method == http.MethodDelete && r.URL.Path == "/v1/jobs/17" {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"id":17,"status":"running"}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"type":"urn:dispatcherd:problem:not-found","title":"There is no such thing","detail":"no job has that id"}`)
	}))
	return server.URL, server.Close
}

// answerRequest answers a request according to its type.
func answerRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil || strings.Contains(string(body), "gone"):
		panic(http.ErrAbortHandler) // ends the connection
	case strings.Contains(string(body), "torn"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"type":"urn:dispatcherd:problem:job-failed","title":"The job failed","detail":"the page is torn"}`)
	case strings.Contains(string(body), "excel"):
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"type":"urn:dispatcherd:problem:no-slot-supports-type","title":"No slot supports the type","retry_after_ms":1000}`)
	default:
		fmt.Fprint(w, `{"pages":1}`)
	}
}

// Cancel a job on any dispatcher.
func ExampleClient_Cancel() {
	url, leave := fakeDispatcher()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		log.Fatal(err)
	}
	defer leave()
	defer c.Close()
	for _, id := range []dispatcherd.JobID{17, 18} {
		status, err := c.Cancel(context.Background(), id)
		var problem *client.Problem
		switch {
		case errors.As(err, &problem) && problem.Type == client.TypeNotFound:
			fmt.Println(id, "never was")
		case err != nil:
			log.Print(err)
		case status == dispatcherd.Running:
			fmt.Println(id, "was told to stop")
		default:
			fmt.Println(id, "will not run")
		}
	}
	// Output:
	// 17 was told to stop
	// 18 never was
}

// table takes the place of a *pgx.Conn, a *pgxpool.Pool or a pgx.Tx.
type table struct{}

// QueryRow implements client.Querier.
func (table) QueryRow(context.Context, string, ...any) pgx.Row { return seventeen{} }

type seventeen struct{}

// Scan implements pgx.Row.
func (seventeen) Scan(dest ...any) error {
	*dest[0].(*int64) = 17
	return nil
}

// No caller waits: the job is a row, and runs when its score is the highest.
func ExampleInsert() {
	db := table{} // or pgx.Connect(ctx, "postgres:///shop")
	id, err := client.Insert(context.Background(), db, client.Job{
		Type: "pdf", Payload: map[string]int{"page": 1}, Priority: 3, RunAt: time.Now().Add(time.Hour), MaxAttempts: 2,
	})
	fmt.Println(id, err)
	// Output: 17 <nil>
}

// The job exists if and only if the transaction of the order commits.
func ExampleInsert_transaction() {
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
		_, err := client.Insert(ctx, tx, client.Job{Type: "invoice", Payload: map[string]string{"item": "book"}})
		return err
	})
	log.Print(err)
}

// The same with database/sql and the driver "pgx", which the import
// _ "github.com/jackc/pgx/v5/stdlib" registers. Any other Postgres driver works too.
func ExampleSQLTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after a Commit it does nothing
	if _, err = client.Insert(ctx, client.SQLTx(tx), client.Job{Type: "invoice"}); err == nil {
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
