// Package rest is what the HTTP calls of all packages have in common: their descriptions ([Route]), their parameters
// and bodies ([Request]), pages of lists ([Page]) and errors ([Problem]). It knows no table and no dispatcher.
package rest
