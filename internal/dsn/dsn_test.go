package dsn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretMark is the password of the tests.
const secretMark = "S3CRETMARK"

func TestShowPrintsUserHostsAndDatabaseOnly(t *testing.T) {
	t.Setenv("PGUSER", "me")
	for text, want := range map[string]string{
		"":                                  "",
		"postgres://u@h/d":                  "postgres://u@h:5432/d",
		"postgres://u:pass@h:5433/d?a=pass": "postgres://u:xxxxx@h:5433/d",
		"postgresql://h/d?password=pass":    "postgres://me:xxxxx@h:5432/d",
		"postgres://u:pa%40ss@h1,h2:6/d?sslmode=disable":   "postgres://u:xxxxx@h1:5432,h2:6/d",
		"host=h password=pass user=u":                      "postgres://u:xxxxx@h:5432/",
		`host=h PASSWORD = 'pa\' ss' user=u dbname=d`:      "postgres://u@h:5432/d", // not the name of a setting
		`host=h password = 'pa\' ss' user=u dbname=d`:      "postgres://u:xxxxx@h:5432/d",
		"host=/run/pg user=u dbname=d":                     "postgres://u@%2Frun%2Fpg:5432/d",
		"host=h user=u dbname=d pasword=pass":              "postgres://u@h:5432/d",
		"mysql://u:pass@h/d":                               "(invalid)",
		" postgres://u:pass@h/d?sslmode=disable":           "(invalid)",
		"'postgres://u:pass@h/d?sslmode=disable'":          "(invalid)",
		"postgres:/u:pass@h/d?sslmode=disable":             "(invalid)",
		"jdbc:postgresql://h/d?user=u&password=pass":       "(invalid)",
		"postgres://u:pass%zz@h/d":                         "(invalid)",
		"postgres://u:pa@ss@h/d":                           "(invalid)",
		"postgres://u:1/pass@h/d":                          "(invalid)",
		"host=h user=u password=pa ss":                     "(invalid)",
		"host=h user=u password=pass sslmode=bogus":        "(invalid)",
		"host=::1 port=6 user=u dbname=d application_name": "(invalid)",
	} {
		require.Equal(t, want, Show(text), text)
	}
}

// The driver's errors quote the string, and its attempt to mask the password fails for these.
func TestErrorQuotesNoPartOfTheString(t *testing.T) {
	for text, reason := range map[string]string{
		"host=h password = %s sslmode=bogus":                "sslmode must be",
		`host=h password=a\ %s sslmode=bogus`:               "sslmode must be",
		`host=h password='a\'%s' port=x`:                    "invalid port",
		"host=h password=a %s":                              "list of key=value",
		"host=h password='%s":                               "list of key=value",
		"host=h passwort=%s port=x":                         "invalid port",
		"postgres://u:a@%s@h/d":                             "write @ as %40",
		"postgres://u:1/%s@h/d":                             "write @ as %40",
		"postgres://u:1/a?b=%s@h/d":                         "write @ as %40",
		"postgres://u:%s/a@h/d":                             "write @ as %40",
		"postgres://u:%s":                                   "invalid port",
		"postgres://u:%s%%@h/d":                             "write @ as %40",
		"%s://u:p@h/d":                                      "begins with postgres://",
		"host=h sslrootcert=/%s":                            "no such file",
		"postgres://u@h/d?sslmode=%s":                       "sslmode must be",
		"postgres://u@h/d?channel_binding=%s":               "invalid value",
		"postgres://u@h/d?pool_max_conns=%s":                "pool_",
		"postgres://u@h/d?connect_timeout=%s":               "connect_timeout",
		"postgres://u@h/d?service=%s":                       "service file",
		"postgres://u@h,g:1,2/d?password=%s&port=1,2,3,4":   "number of ports",
		"postgres://u@h/d?sslmode=require&sslkey=/%s":       "need each other",
		"postgres://u@h/d?default_query_exec_mode=%s":       "invalid value",
		"postgres://u@h/d?target_session_attrs=%s":          "invalid value",
		"postgres://u@h/d?min_protocol_version=%s":          "invalid value",
		"postgres://u@h/d?sslmode=require&require_auth=%s,": "invalid value",
		"postgres://u@h/d?keepalives=%s":                    "keepalives must be 0 or 1",
		"postgres://u@h/d?keepalives_idle=%s":               "keepalives_idle must be a whole number of seconds",
		"postgres://u@h/d?requirepeer=%s":                   "requirepeer is not supported",
		"postgres://u@h/d?scram_client_key=%s":              "scram_client_key is not supported",
		"postgres://u@h/d?gssencmode=require&password=%s":   "gssencmode=require is not supported",
		"postgres://u@h/d?ssl_min_protocol_version=%s":      "must be TLSv1",
		"postgres://u@/d?hostaddr=127.0.0.1&password=%s":    "hostaddr is not supported: give the address as host",
	} {
		text = fmt.Sprintf(text, secretMark)
		_, err := Parse(text)
		require.ErrorContains(t, err, reason, text)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), secretMark, text)
		require.Equal(t, "(invalid)", Show(text), text)
	}
}

// The password is put into every position in which a user or a program could write it. What is
// around it is arbitrary, except that it must not begin another setting.
func FuzzNoPasswordIsPrinted(f *testing.F) {
	for _, junk := range []string{
		"", "a", " ", "@", "/", ":", "?", "#", "%", "%4", "'", `\`, `\ `, "=", "&", "\v", "\n", "é", "\x00", " port=x",
		" sslmode=bogus",
	} {
		f.Add(junk, junk)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		password := before + secretMark + after
		quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "'"
		for _, text := range []string{
			"postgres://u:" + password + "@h/d",
			"postgresql://u:" + password + "@h:1,g:2/d?sslmode=disable",
			"postgres://h/d?password=" + strings.ReplaceAll(password, "&", "%26"),
			"postgres://h/d?sslmode=bogus&password=" + password,
			"postgress://u:" + password + "@h/d",
			"host=h user=u password=" + quoted + " port=x",
			"host=h user=u password = " + quoted,
			"host=h user=u password=" + quoted + " sslmode=bogus",
			"host=h user=u sslpassword=" + quoted + " dbname=d",
		} {
			shown := Show(text)
			if _, err := Parse(text); err != nil {
				shown += err.Error()
			}
			require.NotContains(t, shown, secretMark, "%q", text)
		}
	})
}
