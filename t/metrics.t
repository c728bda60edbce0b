#!/usr/bin/perl

# A full configuration in the status: all policies, queue, probes and health
# checks, names that need escaping.  The Prometheus text is valid and equals the
# JSON; promtool checks it if installed ("make promtool").  JSON keys equal
# those of NGINX Plus's API if they have the same meaning.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new();

$t->engines(3, '--hardware', 'none', '--model', 'm',
            '--enable-prompt-tokens-details');

my @policies = qw(kv_cache least_request random round_robin sticky);

$t->upstream("u_$_", "kvroute $_ zone=z max_pending=auto;",
             'E0', 'E1 weight=2', 'E2 backup', 'kvroute_probe interval=50ms;',
             'kvroute_health interval=50ms timeout=30s fails=1;',
             'kvroute_queue max=8;') for @policies;

my $locations = join '', map {
    "    location /$_/ { proxy_pass http://u_$_/; }\n" } @policies;

$t->upstream('shadowed', 'kvroute_shadow zone=z;', 'E0');

$t->conf(<<'EOC' . $locations)->run();
    kvroute_zone zone=z:2m;
    kvroute_zone 'zone=odd"z:1m';

    upstream 'odd"\\name' {
        zone odd 64k;
        kvroute 'zone=odd"z';
        server 127.0.0.1:%%E0%%;
    }

    location /shadowed/ { proxy_pass http://shadowed/; }
    location /api/ { kvroute_api write=on; }
EOC

for my $p (@policies) {
    is($t->post("/$p/v1/chat/completions",
                chat(text(3_000, $_ % 2), max_tokens => 2))->{status},
       200, "$p: served") for 1 .. 3;
}

is($t->post('/shadowed/v1/chat/completions',
            chat(text(3_000, 0), max_tokens => 2))->{status}, 200, 'shadowed');

$t->get('/kv_cache/v1/models');
is($t->post('/kv_cache/nothing', '{}')->{status}, 404, 'not found');

# two unhealthy engines, one of them for ever

$t->control($t->{vars}{E1}, { health_status => 500 });
ok(wait_for(sub { $t->peer('u_kv_cache', $t->{vars}{E1})->{state}
                  eq 'unhealthy' }), 'an engine is unhealthy');
ok(wait_for(sub {
    my @p = map { @{$_->{peers}} } @{$t->status()->{upstreams}}{
                                       map { "u_$_" } @policies };
    !grep { !$_->{health_checks}{checks}
            || !defined(($_->{engine} || {})->{capacity_tokens}) } @p;
}), 'all have been checked and have reported');
ok($t->idle(), 'idle');

# --- names of NGINX Plus

{
    my $u = $t->status()->{upstreams}{u_kv_cache};
    my %bytes;

    for my $p (@{$u->{peers}}) {
        my $backup = $p->{backup} ? ' (backup)' : '';

        is(join(' ', grep { !exists $p->{$_} }
                qw(id server name backup weight state active max_conns
                   requests responses sent received fails unavail
                   health_checks)), '', "members of a peer$backup");
        is(join(' ', sort keys %{$p->{responses}}),
           '1xx 2xx 3xx 4xx 5xx total', 'members of its responses');
        is(join(' ', sort keys %{$p->{health_checks}}),
           'checks fails last_passed unhealthy', 'members of its checks');

        is(join(' ', grep { !exists $p->{$_} }
                qw(selected header_time response_time)), '',
           'members of a used peer') if $p->{requests};
        ok(!exists $p->{header_time}, 'no time if it was not used')
            if !$p->{requests};

        $bytes{$_} += $p->{$_} for qw(sent received);
    }

    ok($bytes{sent} > 9_000, 'bytes of three prompts were sent');
    ok($bytes{received} > 500 && $bytes{received} < $bytes{sent},
       'bytes of short answers were received');

    my ($p) = grep { $_->{header_time} && $_->{requests} } @{$u->{peers}};
    ok(!$p || $p->{response_time} >= $p->{header_time},
       'the end comes after the header');

    is($u->{peers}[1]{health_checks}{unhealthy}, 1, 'unhealthy once');
    ok(!$u->{peers}[1]{health_checks}{last_passed}, 'the last check failed');
    ok($u->{peers}[1]{health_checks}{fails} > 0, 'and was counted');
    ok($u->{peers}[0]{health_checks}{last_passed}, 'another one\'s last check passed');
    ok($u->{peers}[0]{health_checks}{checks} > 0, 'and was counted');

    is(join(' ', grep { !exists $u->{queue}{$_} } qw(size max_size overflows)),
       '', 'members of a queue');
    is_deeply($t->status('/kvroute/json/upstreams/u_kv_cache/peers/0/'
                         . 'responses'), $u->{peers}[0]{responses},
              'each part has a path');

    is($t->request('POST /api/reset', '')->{status}, 200, 'reset');
    my $again = $t->status()->{upstreams}{u_kv_cache}{peers}[0];
    ok(!exists $again->{header_time} && $again->{sent} == 0
       && $again->{received} == 0, 'counters from zero');
    is($t->peer('u_kv_cache', $t->{vars}{E1})->{health_checks}{unhealthy}, 0,
       'counters of checks, too');
}

# some more requests to count

for my $p (@policies) {
    is($t->post("/$p/v1/chat/completions",
                chat(text(3_000, $_ % 2), max_tokens => 2))->{status},
       200, "$p: served") for 1 .. 2;
}

ok($t->idle(), 'idle');

# --- the Prometheus text

my (%type, %help, %value, @bad);

# a family at a time, its type and help first; each series once

sub read_metrics {
    my ($text) = @_;
    my $family = '';

    (%type, %help, %value) = ();
    @bad = ();

    push @bad, 'no line end' unless $text =~ /\n\z/;

    for (split /\n/, $text) {

        if (/^# HELP (\w+) (\S.*)$/) {
            my $help = $2;
            $family = $1;
            push @bad, "help again: $family" if $help{$family};
            push @bad, "help is no sentence: $family"
                unless $help =~ /^[A-Z0-9].*\.$/;
            $help{$family} = $help;

        } elsif (/^# TYPE (\w+) (counter|gauge|histogram|summary)$/) {
            push @bad, "type away from its help: $1" if $1 ne $family;
            $type{$1} = $2;

        } elsif (/^((\w+)(?:\{((?:\w+="(?:[^"\\]|\\["\\n])*",?)+)\})?) (\S+)$/) {
            my ($series, $name, $labels, $value) = ($1, $2, $3 // '', $4);
            my %seen;

            push @bad, "label again: $_" for grep { /,$/ } $labels;
            push @bad, "label twice: $series"
                if grep { $seen{$_}++ } $labels =~ /(\w+)=/g;
            push @bad, "series twice: $series" if exists $value{$series};
            push @bad, "no number: $_" unless $value =~ /^-?\d+(?:\.\d+)?$/;

            $value{$series} = $value;

            (my $base = $name) =~ s/_(?:bucket|sum|count)$//;
            $base = $name unless ($type{$base} // '') =~ /^(?:hist|summ)/;
            push @bad, "out of its family: $series" if $base ne $family;

        } else {
            push @bad, "not understood: $_";
        }
    }

    # promtool's rules for names

    for (sort keys %type) {
        push @bad, "a counter without _total: $_"
            if ($type{$_} eq 'counter') != (/_total$/ ? 1 : 0);
        push @bad, "no unit: $_"
            if $type{$_} =~ /^(?:hist|summ)/ && !/_(?:seconds|bytes|ratio)$/;
        push @bad, "an unusual unit: $_"
            if /_(?:ms|milliseconds|minutes|hours|days|kb|mb|percent|pct)(?:_|$)/;
        push @bad, "type in a name: $_"
            if /_(?:counter|gauge|histogram|summary)(?:_|$)/;
        push @bad, "not our prefix: $_" unless /^kvroute_[a-z0-9_]+$/;
    }

    # each bucket includes those before, and the last one all

    my %last;

    for my $series (sort keys %value) {
        my ($name, $labels) = $series =~ /^(\w+)_count(?:\{(.*)\})?$/ or next;
        next unless ($type{$name} // '') eq 'histogram';
        my @b = map { $_->[1] } sort { $a->[0] <=> $b->[0] } map {
            /^\Q$name\E_bucket\{\Q$labels\E,le="([^"]+)"\}$/
                ? [ $1 eq '+Inf' ? 9**99 : $1, $value{$_} ] : () } keys %value;
        push @bad, "buckets: $series"
            if !@b || $b[-1] != $value{$series}
               || grep { $b[$_] < $b[$_ - 1] } 1 .. $#b;
    }

    return join "\n", @bad;
}

# a server that is drained has series for it

my $drained = "drain?peer=" . $t->peer("u_kv_cache", $t->{vars}{E0})->{name};

is($t->post("/api/$drained&timeout=1h", '')->{status}, 200, 'drained');

my $text = $t->get('/kvroute/metrics')->{body};

is($t->post("/api/un$drained", '')->{status}, 200, 'undrained');

is(read_metrics($text), '', 'the format is valid');
ok(keys %type > 40, 'it has many metrics');
is(join(' ', grep { my $n = $_; !grep { /^\Q$n\E(?:_count)?(?:\{| |$)/ } keys %value }
        # those of t/share.t, t/snapshot.t, t/legs.t, t/events.t, t/continue.t, t/budget.t, t/whatif.t and t/eject.t apart
        grep { !/^kvroute_(?:share|snapshot|peer_elsewhere|disaggregated|leg1|peer_events|continued|cut|late|budget|tenant|whatif)_/ }
        grep { !/^kvroute_peer_reason$/ }
        sort keys %type), '', 'each metric has a series');

# these checks can fail

for my $case ([ 's/_total\b//g', qr/not understood|out of its family|_total/ ],
              [ 's/^(kvroute_peer_sent_bytes_total.*)$/$1\n$1/m', qr/twice/ ],
              [ 's/^# TYPE kvroute_ttft.*\n//m', qr/out of its family/ ],
              [ 's/(le="\+Inf"\}) (\d+)/"$1 " . ($2 + 1)/e', qr/buckets/ ],
              [ 's/\\\\"/"/', qr/not understood/ ])
{
    my ($change, $re) = @$case;
    local $_ = $text;
    eval "$change; 1" or die $@;
    isnt($_, $text, "changed: $change");
    like(read_metrics($_), $re, 'is found');
}

is(read_metrics($text), '', 'the original is valid');

# labels have few values, whatever clients send

my %labels;
for (keys %value) {
    $labels{$1}{$2} = 1 while /(\w+)="((?:[^"\\]|\\.)*)"/g;
}

is(join(' ', sort keys %labels), join(' ', sort qw(class code health le model nginx_version
   peer policy reason state stream type upstream version zone)), 'labels');
is(scalar keys %{$labels{peer}}, 3, 'no other peers');
is(join(' ', sort keys %{$labels{zone}}), 'odd\"z z', 'zones, escaped');
ok($labels{upstream}{'odd\"\\\\name'}, 'and upstreams');

# its values equal the JSON's

{
    my $s = $t->status();
    $text = $t->get('/kvroute/metrics')->{body};
    read_metrics($text);

    my %same = (requests_total => 'requests', failures_total => 'fails',
                unavailable_total => 'unavail', sent_bytes_total => 'sent',
                received_bytes_total => 'received',
                prompt_bytes_total => 'prompt_bytes',
                matched_bytes_total => 'matched_bytes',
                best_bytes_total => 'best_bytes', active_requests => 'active',
                pending_bytes => 'pending', capacity_bytes => 'capacity_bytes');

    for my $u (map { "u_$_" } @policies) {
        my @odd;

        for my $p (@{$s->{upstreams}{$u}{peers}}) {
            my $l = qq({upstream="$u",peer="$p->{name}"});

            for (sort keys %same) {
                my $v = $value{"kvroute_peer_$_$l"};
                push @odd, "$_: " . ($v // 'none') . " $p->{$same{$_}}"
                    if !defined $v || $v != $p->{$same{$_}};
            }

            push @odd, 'unhealthy' if $value{"kvroute_peer_unhealthy_total$l"}
                                      != $p->{health_checks}{unhealthy};

            my $n = $value{"kvroute_peer_header_seconds_count$l"};
            push @odd, 'header_time' if $n && $p->{header_time}
                != int(1000 * $value{"kvroute_peer_header_seconds_sum$l"} / $n
                       + 1e-6);
        }

        is(join("\n", @odd), '', "$u: as in the JSON");
    }
}

SKIP: {
    my $promtool = which('promtool')
        or skip 'promtool is not here (make promtool)', 2;

    Kvroute::write_file("$t->{dir}/metrics", $text);
    is(`$promtool check metrics < $t->{dir}/metrics 2>&1`, '',
       'promtool finds nothing');

    $text =~ s/kvroute_peer_sent_bytes_total/kvroute_peer_sent_kb/g;
    Kvroute::write_file("$t->{dir}/metrics", $text);
    isnt(`$promtool check metrics < $t->{dir}/metrics 2>&1`, '',
         'but it finds a bad name');
}

$t->done();
