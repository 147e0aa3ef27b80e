package settings

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSecretsOfAConnectionStringAreMasked(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                      "",
		"postgres://u@h/d":                      "postgres://u@h/d",
		"postgres://u:hunter2@h:5432/d?a=b":     "postgres://u:xxxxx@h:5432/d?a=b",
		"postgresql://h/d?password=hunter2":     "postgresql://h/d?password=xxxxx",
		"postgres://h/d?sslpassword=hunter2":    "postgres://h/d?sslpassword=xxxxx",
		"postgres://u:hunter2%zz@h/d":           "postgres://(unreadable)",
		"host=h password=hunter2 user=u":        "host=h password=xxxxx user=u",
		`host=h PASSWORD = 'hun\' ter2' user=u`: "host=h PASSWORD = xxxxx user=u",
		`password=hun\ ter2`:                    "password=xxxxx",
		"sslpassword=hunter2":                   "sslpassword=xxxxx",
		"mysql://u:hunter2@h/d":                 "mysql://u:xxxxx@h/d",
	} {
		require.Equal(t, want, maskDSN(dsn))
	}
}

func TestNoPasswordSurvivesMasking(t *testing.T) {
	word := rapid.StringMatching(`[a-zA-Z0-9]{1,8}`)
	rapid.Check(t, func(rt *rapid.T) {
		secret := "S3CR" + word.Draw(rt, "secret")
		dsn := rapid.SampledFrom([]string{
			"postgres://%[2]s:%[1]s@h/d", "postgress://%[2]s:%[1]s@h/d?a=b", "postgres://h/%[2]s?password=%[1]s", "user=%[2]s password=%[1]s",
			"password='%[1]s' user=%[2]s", "password = %[1]s%[2]s", "postgres://h/d?user=%[2]s&sslpassword=%[1]s",
		}).Draw(rt, "form")
		dsn = fmt.Sprintf(dsn, secret, word.Draw(rt, "other"))
		require.NotContains(rt, maskDSN(dsn), secret)
	})
}
