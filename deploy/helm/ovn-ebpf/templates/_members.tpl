{{/* The members of OVN's databases as NAME=ADDRESS,…: those of the values; else those of the last
release, so that a new node changes nothing; else nodes of the control plane, in the API's order. */}}
{{- define "ovn-ebpf.members" -}}
{{- $members := dict -}}
{{- if .Values.ovn.members -}}
{{- $members = .Values.ovn.members -}}
{{- $stored := dig "data" "OVN_MEMBERS" "" (lookup "v1" "ConfigMap" .Release.Namespace "ovn-ebpf") -}}
{{- $kept := 0 -}}
{{- range splitList "," $stored }}{{ if hasKey $members (splitList "=" . | first) }}{{ $kept = add1 $kept }}{{ end }}{{ end -}}
{{- if and $stored (eq (int $kept) 0) -}}
{{- fail (printf "ovn.members has none of the nodes of OVN's databases, %s: they would start empty. Keep one, from which the others get the data" $stored) -}}
{{- end -}}
{{- if and $stored (le (mul 2 $kept) (splitList "," $stored | len)) -}}
{{- fail (printf "ovn.members has %d of the nodes of OVN's databases, %s: new members join a majority only. Replace one at a time, and remove the old one from the cluster before the next" (int $kept) $stored) -}}
{{- end -}}
{{- else -}}
{{- range dig "data" "OVN_MEMBERS" "" (lookup "v1" "ConfigMap" .Release.Namespace "ovn-ebpf") | splitList "," -}}
{{- if . }}{{ $_ := set $members (splitList "=" . | first) (splitList "=" . | last) }}{{ end -}}
{{- end -}}
{{- $replicas := int .Values.ovn.replicas -}}
{{- range dig "items" list (lookup "v1" "Node" "" "") -}}
{{- if and (lt (len $members) $replicas) (hasKey (.metadata.labels | default dict) "node-role.kubernetes.io/control-plane") -}}
{{- $name := .metadata.name -}}
{{- range .status.addresses -}}
{{- if and (eq .type "InternalIP") (not (hasKey $members $name)) }}{{ $_ := set $members $name .address }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if lt (len $members) $replicas -}}
{{- fail (printf "ovn.replicas is %d, and Helm finds %d nodes with the label node-role.kubernetes.io/control-plane: give the nodes of OVN's databases, as in --set ovn.members.NODE=ADDRESS, or ovn.host=true where others run them" $replicas (len $members)) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $members) (int .Values.ovn.replicas) -}}
{{- fail (printf "ovn.replicas is %d, and there are %d members: set ovn.replicas to the number of ovn.members, or of members before" (int .Values.ovn.replicas) (len $members)) -}}
{{- end -}}
{{- $list := list -}}
{{- range $name, $address := $members }}{{ $list = append $list (print $name "=" $address) }}{{ end -}}
{{- join "," $list -}}
{{- end }}
{{/* The addresses of a database for its clients: the context and a port. */}}
{{- define "ovn-ebpf.database" -}}
{{- $port := index . 1 -}}
{{- $list := list -}}
{{- range include "ovn-ebpf.members" (index . 0) | splitList "," -}}
{{- $address := splitList "=" . | last -}}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end -}}
{{- $list = append $list (printf "ssl:%s:%d" $address $port) -}}
{{- end -}}
{{- join "," $list -}}
{{- end }}
