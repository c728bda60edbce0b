#!/usr/bin/perl

# The requests of other routers to the two servers (t/legs, recorded), and ours:
# the tables below have each difference.

use FindBin;
use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Recorder;

my $t = Kvroute->new();
my $json = JSON::PP->new->canonical->allow_nonref;
my %recorded = map { $_ => $json->decode(Kvroute::slurp("$FindBin::Bin/legs/$_.json")) }
               qw(vllm-nixl vllm-mooncake sglang);

# members that they add when they rewrite a request

my %default = (
    (map { $_ => JSON::PP::false }
     qw(background continue_final_message echo ignore_eos logprobs no_logs
        no_stop_trim return_bytes return_entropy return_hidden_states
        return_logprob return_text_in_logprobs stream)),
    (map { $_ => JSON::PP::true }
     qw(include_reasoning log_metrics separate_reasoning skip_special_tokens
        stream_reasoning)),
    model => undef
);

# differences with a reason, by router, leg and member: theirs, ours; "-" is no
# member, "?" any value.  docs/prefill-decode.md has the reasons.

my %differs;

for (grep { /\S/ } split /\n/, <<'EOF') {
vllm-nixl     prefill max_completion_tokens 1 -
vllm-nixl     prefill min_tokens            1 -
vllm-nixl     *       bootstrap_host        "10.9.9.9" -
vllm-nixl     *       bootstrap_port        1 -
vllm-nixl     *       bootstrap_room        7 -
vllm-nixl     *       temperature           0.699999988079071 ?
vllm-mooncake prefill max_completion_tokens 1 -
vllm-mooncake prefill min_tokens            1 -
vllm-mooncake *       bootstrap_host        "10.9.9.9" -
vllm-mooncake *       bootstrap_port        1 -
vllm-mooncake *       bootstrap_room        7 -
vllm-mooncake *       temperature           0.699999988079071 ?
sglang        *       max_completion_tokens 64 -
sglang        *       max_tokens            - 64
sglang        *       temperature           0.699999988079071 ?
EOF
    my ($router, $leg, $member, @values) = split;
    $differs{"$router $_ $member"} = \@values
        for $leg eq '*' ? qw(prefill decode) : $leg;
}

my $descriptor = $json->encode(
    $json->decode($recorded{'vllm-nixl'}{cases}[0]{decode}{body})
    ->{kv_transfer_params});

recorder($t, 'P0', "{\"id\":\"1\",\"kv_transfer_params\":$descriptor}");
recorder($t, 'D0', '{"id":"2"}');

$t->conf(<<'EOF');
    kvroute_zone zone=z:4m;
    kvroute_salt $http_x_case;

    upstream prefill { kvroute kv_cache zone=z; server 127.0.0.1:%%P0%%; }
    upstream decode { kvroute kv_cache zone=z; server 127.0.0.1:%%D0%%; }

    proxy_set_header X-Case "";
    proxy_set_header Connection "";
    proxy_http_version 1.1;

    location /vllm-nixl/ {
        kvroute_prefill prefill connector=nixl min=1!;
        proxy_pass http://decode/;
    }
    location /vllm-mooncake/ {
        kvroute_prefill prefill connector=mooncake:18998 min=1!;
        proxy_pass http://decode/;
    }
    location /sglang/ {
        kvroute_prefill prefill connector=sglang:18998;
        proxy_pass http://decode/;
    }
EOF

$t->run();

my %seen;

# returns the members with different values, except random ones

sub differences {
    my ($router, $leg, $theirs, $ours) = @_;

    my @found;
    my %all = (%$theirs, %$ours);

    for my $member (sort keys %all) {
        my @values = map { exists $_->{$member} ? $json->encode($_->{$member})
                           : '-' } $theirs, $ours;

        for (@values) {
            s/("transfer_id":"xfer)-[-\w]+"/$1"/;
            s/("remote_engine_id":).*?([,}])/$1"E"$2/ if $router =~ /mooncake/;
            $_ = 'room' if $member eq 'bootstrap_room' && /^\d{15,19}$/;
        }

        next if $values[0] eq $values[1];
        next if $values[1] eq '-' && exists $default{$member}
                && $values[0] eq $json->encode($default{$member});
        next if $values[0] eq '-' && $values[1] eq 'null';

        my $known = $differs{"$router $leg $member"};

        if ($known && $known->[0] eq $values[0]
            && ($known->[1] eq '?' || $known->[1] eq $values[1]))
        {
            $seen{"$router $leg $member"} = 1;
            next;
        }

        push @found, "$member: they $values[0], we $values[1]";
    }

    return @found;
}

sub headers { return { map { /^(\S+?): (.*)/ ? (lc $1 => $2) : () } @_ } }

for my $router (sort keys %recorded) {
    my $n = 0;

    for my $case (@{$recorded{$router}{cases}}) {
        my $name = "$router: $case->{name}";

        unlink map { "$t->{dir}/$_.sent" } qw(P D);

        my $r = $t->post("/$router$case->{path}", $case->{body}, headers => {
            'Authorization' => 'Bearer key', 'X-Case' => "$router" . $n++ });

        is($r->{status}, 200, $name);

        # its limit is not at the root, where we could set it

        if ($case->{path} eq '/generate' && $router ne 'sglang') {
            is(scalar(my @none = sent($t, 'P')), 0, 'one server');
            next;
        }

        wait_for(sub { sent($t, 'P') && sent($t, 'D') });

        my %ours = (prefill => (sent($t, 'P'))[0], decode => (sent($t, 'D'))[0]);

        for my $leg (qw(prefill decode)) {
            my $theirs = $case->{$leg};
            my @lines = split /\r\n/, $ours{$leg}{head};
            my ($th, $oh) = (headers(@{$theirs->{head}}), headers(@lines));

            is(join("\n", differences($router, $leg,
                                      $json->decode($theirs->{body}),
                                      $json->decode($ours{$leg}{body}))),
               '', "$leg: members");
            is($lines[0], $theirs->{head}[0], 'request line');
            is($oh->{authorization}, 'Bearer key', 'the client\'s key');
            is($oh->{'content-type'}, $th->{'content-type'}, 'type');
            is(join(' ', grep { !exists $oh->{$_} } sort keys %$th),
               $router eq 'sglang' ? 'accept' : 'accept x-request-id',
               'headers that only they have');
            is(join(' ', grep { !exists $th->{$_} } sort keys %$oh), '',
               'headers that only we have');
        }

        # the reference between both is the same in both

        my ($p, $d) = map { $_ =~ /(?:room":|"xfer-)(\d+)/ ? $1 : '' }
                      map { $ours{$_}{body} } qw(prefill decode);
        is($p, $d, 'they meet');
    }
}

is(join(', ', grep { !$seen{$_} } sort keys %differs), '',
   'each difference in the table occurs');

$t->done();
