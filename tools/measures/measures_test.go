package main

import (
	"slices"
	"testing"
)

func TestTokensDoNotDependOnTheFormat(t *testing.T) {
	one, comments := scan("package p\n\nvar a, b = 1, \"x\" // beside\n")
	two, above := scan("package p\n\n// Above\n// it.\nvar (\n)\n")
	if one != 10 || comments != 0 || two != 5 || above != 2 {
		t.Errorf("tokens %d and %d, lines of comments %d and %d", one, two, comments, above)
	}
}

func TestProductIsWhatUsersRun(t *testing.T) {
	for _, name := range []string{"job.go", "claim/fetch.go", "cmd/dispatcherd/main.go", "internal/daemon/daemon.go"} {
		if !isProduct(name) {
			t.Errorf("%s is product", name)
		}
	}
	for _, name := range []string{
		"job_test.go", "claim/claimfake/table.go", "internal/sim/run.go", "tools/measures/main.go", "internal/pgtest/a.go",
	} {
		if isProduct(name) {
			t.Errorf("%s is no product", name)
		}
	}
}

func TestPercentileIsAValueThatIsNotExceeded(t *testing.T) {
	values := slices.Repeat([]int{1}, 9)
	if got := percentile(append(values, 7), 90); got != 1 {
		t.Error(got)
	}
	if got := percentile(append(values, 7), 100); got != 7 {
		t.Error(got)
	}
}

func TestSQLIsCountedInMigrations(t *testing.T) {
	const text = `CREATE FUNCTION dispatcherd.a() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION dispatcherd.b(x int) RETURNS int LANGUAGE sql AS $f$
	SELECT 1 $f$;
CREATE TABLE dispatcherd.ends (id bigint);
SELECT pg_get_functiondef('dispatcherd.a'::regproc), pg_notify('one', ''), pg_notify('one', '');
`
	tr := &tree{files: map[string]string{"migrations/a.sql": text}, names: []string{"migrations/a.sql"}}
	c := tr.sqlCode()
	if c.lines != 8 || len(c.functions) != 2 || c.bodies != 3 || c.patches != 1 || c.outboxes != 1 || tr.channels() != 1 {
		t.Errorf("%+v, %d channels", c, tr.channels())
	}
}
