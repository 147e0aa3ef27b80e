package dispatcherd

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// A difference after an update of Go means that Unicode has new characters. Then add them here
// and, by a migration, to dispatcherd.job_type.
func TestInvisibleCharactersAreThoseOfUnicode(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		want := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Variation_Selector)
		if Invisible(r) != want {
			t.Errorf("Invisible(%U) = %v", r, !want)
		}
	}
}

func TestInvisibleCharacterInATypeIsNamed(t *testing.T) {
	for _, name := range []string{"pdf", "a b", "größe", "請求", "a=b;c", "🙂"} {
		require.NoError(t, CheckType(name))
	}
	for name, says := range map[string]string{
		"payroll\u200b": "U+200B at byte 8", "\u202efdp": "U+202E at byte 1", "a\u2028b": "U+2028 at byte 2",
		"a\n": "U+000A", "a\x00": "U+0000", "a\u0085": "U+0085", "a\ufe0f": "U+FE0F", "a\xff": "not UTF-8", "": "missing",
	} {
		require.ErrorContains(t, CheckType(name), says, "%q", name)
	}
}
