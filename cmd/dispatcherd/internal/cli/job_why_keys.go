package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// keyText says for which key a job waits, and for what.
func keyText(reason string, k *httpapi.KeyWait, now time.Time) string {
	capacity := "none"
	if k.Capacity != nil {
		capacity = strconv.FormatInt(*k.Capacity, 10)
	}
	var text string
	switch reason {
	case httpapi.ReasonKeyPaused:
		return fmt.Sprintf("key %s is paused: its capacity is 0; 'limit set' with another capacity resumes it", k.Key)
	case httpapi.ReasonKeyCost:
		return fmt.Sprintf("it costs more than the limit of key %s, which is %s: raise the limit, or cancel the job", k.Key, capacity)
	case httpapi.ReasonKeyOrder:
		text = fmt.Sprintf("job %d has precedence at key %s", k.First, k.Key)
		if k.RetryAt != nil {
			text += " while it waits for its retry (on_retry=wait), until " + moment(*k.RetryAt, now)
		}
	case httpapi.ReasonKeyRate:
		text = fmt.Sprintf("the window of key %s has no room", k.Key)
		if k.At != nil {
			text += " until " + moment(*k.At, now)
		}
	case httpapi.ReasonKeyElsewhere:
		return controllerText(k, capacity)
	default:
		text = keyHeldText(k, capacity)
	}
	return text + When(k.Position > 0, "; place %s%d in the queue", When(k.AtLeast, "at least "), k.Position)
}

// keyHeldText says how much of a key is held, and by which jobs.
func keyHeldText(k *httpapi.KeyWait, capacity string) string {
	holders := strings.Trim(fmt.Sprint(k.Holders), "[]")
	if k.Alone && len(k.Holders) == 1 {
		return fmt.Sprintf("job %s runs alone on key %s", holders, k.Key)
	}
	text := fmt.Sprintf("%d of capacity %s%s of key %s are held", k.Held, capacity, When(k.Scope != "", " for each dispatcher"), k.Key)
	if k.Alone {
		text = fmt.Sprintf("jobs run alone on key %s at their dispatchers; held", k.Key)
	}
	return text + When(holders != "", " by %s", holders)
}

func controllerText(k *httpapi.KeyWait, capacity string) string {
	if k.Controller == nil {
		return "no dispatcher is the controller, which admits jobs with keys; " + keyHeldText(k, capacity)
	}
	return fmt.Sprintf("dispatcher %s is the controller and knows more; %s", k.Controller.Name, keyHeldText(k, capacity))
}
