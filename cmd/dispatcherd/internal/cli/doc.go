// Package cli contains what all commands share, and the commands about jobs, schedules, limits, batches and flows, which ask a
// dispatcher over its API.
//
//   - An [Invocation] is one command line with its streams, its environment and the values of its settings.
//   - console.go writes data as tables or JSON on one stream, and messages on another.
//   - settings.go gives every flag of every command its value: from the command line, else from the environment, else from the
//     file, else its default. A flag is a setting unless its command marks it with [OnlyOnCommandLine]. Settings are resolved
//     before the RunE of a command, so a command reads its flags only. The flags have bounds, and misspelt names are reported.
//   - ask.go sends requests to the API of a running dispatcher, and maps its problems to errors with exit codes.
//   - The other files contain commands. Each file is named after its group and its command.
package cli
