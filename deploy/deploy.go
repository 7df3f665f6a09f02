// Package deploy tests the Helm chart beside it.
package deploy
