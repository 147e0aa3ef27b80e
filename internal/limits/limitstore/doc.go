// Package limitstore contains the SQL of jobs with keys. [Controller] has the operations of the dispatcher
// that admits jobs, [Limits] those of users and operators, and [API] their HTTP calls.
package limitstore
