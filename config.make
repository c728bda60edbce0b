
# read by nginx's configure after config: a rule, so that a changed page is
# made again without another configure

cat << END                                                    >> $NGX_MAKEFILE

$kvr_page:	`echo $kvr/status/page*` $kvr/status/embed \
		$kvr/../docs/operations.md
	sh $kvr/status/embed $kvr/status/page.html > \$@.new
	mv \$@.new \$@

END
