package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
)

// rowsOfADispatcher answers edits of schedules and limits, and shows one key.
func rowsOfADispatcher() (url string, leave func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			fmt.Fprint(w, `{"key":"tenant:42","held":1,"jobs":[{"id":17,"type":"import","cost":1,"fence":9}],"waiting":3}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body) // an example whose body is cut fails by its output
	}))
	return server.URL, server.Close
}

// Run a report each night, and a sweep ten minutes after the end of the last one.
func ExampleSchedules_Set() {
	url, leave := rowsOfADispatcher()
	defer leave()
	c, err := client.New(client.Options{URL: url}) // or Socket: "/run/dispatcherd/api.sock"
	if err != nil {
		panic(err)
	}
	defer c.Close()
	nightly := client.NewSchedule()
	nightly.Name, nightly.Spec, nightly.TimeZone = "nightly", "30 2 * * *", "Europe/Berlin"
	nightly.Type, nightly.Payload, nightly.Priority = "report", []byte(`{"pages": 3}`), 5
	sweep := client.NewSchedule()
	sweep.Name, sweep.Kind, sweep.Every, sweep.Type = "sweep", "interval", client.Duration(10*time.Minute), "sweep"
	for _, s := range []client.Schedule{nightly, sweep} {
		created, err := c.Schedules().Set(context.Background(), s)
		fmt.Println(s.Name, s.Kind, s.Overlap, s.MaxAttempts, created, err)
	}
	// Output:
	// nightly cron skip 5 true <nil>
	// sweep interval skip 5 true <nil>
}

// At most two jobs of each tenant run at once, and three start per second.
func ExampleLimits_Set() {
	url, leave := rowsOfADispatcher()
	defer leave()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	tenants := client.NewLimit("tenant:*")
	tenants.Capacity, tenants.Rate, tenants.Per = new(2), 3, client.Duration(time.Second)
	created, err := c.Limits().Set(context.Background(), tenants)
	fmt.Println(tenants.Scope, tenants.OnRetry, created, err)
	// Output: cluster pass true <nil>
}

// Show which jobs hold a key.
func ExampleKeys_Show() {
	url, leave := rowsOfADispatcher()
	defer leave()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	key, err := c.Keys().Show(context.Background(), "tenant:42")
	if err != nil {
		panic(err)
	}
	for _, job := range key.Jobs {
		fmt.Println(job.ID, job.Type, "cost", job.Cost, "fence", job.Fence)
	}
	fmt.Println(key.Waiting, "jobs wait")
	// Output:
	// 17 import cost 1 fence 9
	// 3 jobs wait
}
