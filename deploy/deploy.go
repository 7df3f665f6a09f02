// Package deploy has only tests: of the Helm chart and of the other files in this directory.
package deploy
