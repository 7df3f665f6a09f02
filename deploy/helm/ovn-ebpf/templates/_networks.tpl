{{/* The beginning of an IPv4 network as a number: the network and a prefix length, which must not be longer
than its own. */}}
{{- define "ovn-ebpf.ipv4" -}}
{{- $number := 0 -}}
{{- range splitList "." (splitList "/" (index . 0) | first) }}{{ $number = add (mul $number 256) (atoi .) }}{{ end -}}
{{- range until (sub 32 (index . 1) | int) }}{{ $number = div $number 2 }}{{ end -}}
{{- $number -}}
{{- end }}
{{/* Fails if two of the networks overlap, given as dicts of name and network. Of IPv6, the programs tell. */}}
{{- define "ovn-ebpf.distinct" -}}
{{- $seen := list -}}
{{- range . -}}
{{- $one := . -}}
{{- if regexMatch "^[0-9.]+/[0-9]+$" $one.network -}}
{{- range $seen -}}
{{- $shorter := min (splitList "/" $one.network | last | atoi) (splitList "/" .network | last | atoi) | int -}}
{{- if and (ne .name $one.name) (eq (include "ovn-ebpf.ipv4" (list $one.network $shorter)) (include "ovn-ebpf.ipv4" (list .network $shorter))) -}}
{{- fail (printf "%s %s overlaps %s %s: give networks that nothing else uses" .name .network $one.name $one.network) -}}
{{- end -}}
{{- end -}}
{{- $seen = append $seen $one -}}
{{- end -}}
{{- end -}}
{{- end }}
{{/* Fails if networks of the configuration overlap each other or contain an address of a node. */}}
{{- define "ovn-ebpf.networks" -}}
{{- $all := list -}}
{{- range splitList "," .Values.config.CLUSTER_SUBNETS -}}
{{- $parts := splitList "/" (trim .) -}}
{{- if gt (len $parts) 1 }}{{ $all = append $all (dict "name" "config.CLUSTER_SUBNETS" "network" (printf "%s/%s" (index $parts 0) (index $parts 1))) }}{{ end -}}
{{- end -}}
{{- range $key := list "SERVICE_CIDRS" "GATEWAY_V4_JOIN_SUBNET" -}}
{{- range splitList "," (get $.Values.config $key) -}}
{{- $all = append $all (dict "name" (print "config." $key) "network" (trim .)) -}}
{{- end -}}
{{- end -}}
{{- range dig "items" list (lookup "v1" "Node" "" "") -}}
{{- $name := .metadata.name -}}
{{- range .status.addresses -}}
{{- if eq .type "InternalIP" }}{{ $all = append $all (dict "name" (print "node " $name) "network" (print .address "/32")) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "ovn-ebpf.distinct" $all -}}
{{- end }}
