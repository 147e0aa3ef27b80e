package contract

import "github.com/dispatcherd/dispatcherd"

// RowNotification is what a notification says about the only row that its
// transaction made pending. It is a hint: any session may notify, and the row may
// have changed or be gone. It says nothing about other rows.
type RowNotification struct {
	Type     string
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass
	Key      Key
}
