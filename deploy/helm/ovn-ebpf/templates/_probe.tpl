{{/* The httpGet of a probe, of a role's bind address, the default one, and a path. An address that stands
for all of the host's is asked at loopback. */}}
{{- define "ovn-ebpf.probe" -}}
{{- $at := index . 0 | default (index . 1) -}}
{{- $port := regexFind "[0-9]+$" $at -}}
{{- $host := trimSuffix (print ":" $port) $at | trimPrefix "[" | trimSuffix "]" -}}
{{- if has $host (list "" "0.0.0.0") }}{{ $host = "127.0.0.1" }}{{ else if eq $host "::" }}{{ $host = "::1" }}{{ end -}}
{host: {{ $host | quote }}, port: {{ $port }}, path: {{ index . 2 }}}
{{- end }}
