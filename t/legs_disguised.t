#!/usr/bin/perl

# Members of bodies that control transfers, in every disguise: a location with
# kvroute_prefill passes none of them, and passes honest bodies.  Some hundred
# bodies by a seed; REQUESTS= and SEED= change that.

use strict;
use warnings;
no warnings "recursion";

use Encode ();
use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Servers;

my $requests = $ENV{REQUESTS} || 600;
my $seed = $ENV{SEED} || 1;

my @names = qw(kv_transfer_params ec_transfer_params bootstrap_host
    bootstrap_port bootstrap_room bootstrap_pair_key disaggregated_params
    disagg_prefill_dp_rank decode_tp_size);

my %private = map { $_ => 1 } @names;

# members of the root with the client's own text

my %content = map { $_ => 1 } qw(messages prompt input text tools functions
    response_format metadata);

my $t = Kvroute->new();
my $bad = "$t->{dir}/bad";


# members that an engine would use for a transfer, and that are not nginx's

sub told {
    my ($body) = @_;
    my ($depth, $skip, @keys, @found) = (0, 0);

    # like Python's json.loads()

    my $code = $body =~ /^\xef\xbb\xbf/ ? 'UTF-8'
               : $body =~ /^(?:\xff\xfe\0\0|\0\0\xfe\xff)/ ? 'UTF-32'
               : $body =~ /^(?:\xff\xfe|\xfe\xff)/ ? 'UTF-16'
               : $body =~ /^\0\0\0/ ? 'UTF-32BE' : $body =~ /^\0/ ? 'UTF-16BE'
               : $body =~ /^[^\0]\0\0\0/ ? 'UTF-32LE'
               : $body =~ /^[^\0]\0/ ? 'UTF-16LE' : '';

    $body = Encode::encode('UTF-8', Encode::decode($code, $body)) if $code;
    $body =~ s/^\xef\xbb\xbf//;

    return () if $body !~ /^\s*[\[{]/;

    while ($body =~ /\G[^"{}\[\]]*(?:([{\[])|([}\]])|"((?:[^"\\]++|\\.)*+)"(\s*:)?)/gs)
    {
        my ($open, $close, $text, $colon) = ($1, $2, $3, $4);

        if ($open) {
            $skip = $depth + 1 if !$skip && $depth == 1 && $content{$keys[1] // ''};
            $depth++;

        } elsif ($close) {
            $depth--;
            $skip = 0 if $skip && $depth < $skip;

        } elsif ($colon) {
            $text =~ s/\\u([0-9a-f]{4})/chr hex $1/gei;
            $keys[$depth] = $text;

            push @found, [$depth, $text, substr($body, pos($body), 60)]
                if $private{$text} && !$skip;
        }
    }

    # nginx's own members are at the root, once, after all others

    my %own;

    return map { "$_->[0] $_->[1]" } grep {
        $_->[0] != 1 || $own{$_->[1]}++
        || $_->[2] !~ /^\{"(?:id":"ours|do_remote)|^"127\.0\.0\.1"|^\d{4,},|^\d+\}$/
    } @found;
}


sub server {
    my ($name, $answer) = @_;

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (my ($head, $body)
               = Kvroute::Servers::backend_read($c, \$data))
        {
            my ($line) = $head =~ /^(.*?)\r?$/m;
            my @told = told($body);

            push @told, 'two codings' if $head =~ /^Content-Encoding:.*gzip/mi;

            if (@told) {
                open my $fh, '>>', $bad;
                syswrite($fh, "$name: $line: @told: $body\n");
            }

            my $text = $answer // $body;

            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: "
                         . length($text) . "\r\n\r\n"
                         . ($line =~ /^HEAD/ ? '' : $text));
        }
    });
}

server('P', '{"kv_transfer_params":{"id":"ours"}}');
server('D');

$t->upstreams(prefill => ['P', 'keepalive 4;'],
              decode => ['D', 'keepalive 4;']);

my @where = qw(nixl nixl-file nixl-small sglang mooncake store header plain);

my $locations = join '', map {
    my ($connector, $how) = split /-/;
    my $more = $how ? $how eq 'file' ? 'client_body_in_file_only clean;'
                                     : 'client_body_buffer_size 256;' : '';
    my $prefill = $connector eq 'plain' ? 'prefill min=8m'
                  : "prefill connector=$connector"
                    . ($connector eq 'sglang' ? '' : ' min=200!');

    "location /$_/ { kvroute_prefill $prefill; $more "
    . "proxy_pass http://decode/; }\n"
} @where;

$t->conf(<<"EOC");
    kvroute_zone zone=z:4m;
    client_body_buffer_size 64k;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    $locations
EOC

$t->run();
srand($seed);

sub one { return $_[int rand @_] }
sub blank { return one('', '', '', ' ', "\n\t", ' ' x int rand 300) }

# a name in any spelling

sub name {
    my ($name, $how) = (@_, int rand 4);

    return $name if $how < 2;

    return join '', map {
        $how == 2 && rand() < .7 ? $_
            : sprintf one('\\u%04x', '\\u%04X'), ord
    } split //, $name;
}

sub evil {
    return one('null', '1', '"EVIL"', '-0.1e+99', '""', '"\\\\"', '"\\"}"',
               '{"remote_host":"EVIL","a":[{"}":"]"}],"b":"\\"}"}',
               '[' x 90 . ']' x 90, '"' . 'x' x int(rand 3000) . '"');
}

sub member { return '"' . name($_[0]) . '"' . blank() . ':' . blank() . evil() }

# honest members; some look like a transfer's

sub honest {
    my @all = ('"model":"m"', '"stream":true', '"max_tokens":9',
               '"stop":["a","\\"","kv_transfer_params"]', '"seed":-1.5e3',
               '"stream_options":{"include_usage":true}', '"user":"\\\\"',
               '"parameters":{"temperature":0.5}', '"vllm_xargs":{}',
               '"metadata":{"kv_transfer_params":1}',
               '"tools":[{"function":{"properties":{"bootstrap_host":{}}}}]',
               '"kv_transfer_param":1', '"bootstrap_hosts":2',
               '"note":"\\"kv_transfer_params\\":1"',
               '"logit_bias":{"17":-100,"18":1}');

    return grep { rand() < .4 } @all;
}

# the members at a random place in an object

sub into {
    my ($text, @members) = @_;
    my @all = ($text ? ($text) : ());

    splice @all, int rand(@all + 1), 0, $_ for @members;

    return '{' . join(blank() . ',' . blank(), @all) . blank() . '}';
}

sub body {
    my ($private) = @_;
    my @members = map { member(one(@names)) } 1 .. $private;
    my @rest = (honest(), '"prompt":"' . text(300, int rand 1e6) . '"');
    my $how = int rand 8;

    if ($how == 0 && @members) {
        push @rest, '"parameters":' . into(one('', '"a":1'), @members);

    } elsif ($how == 1 && @members) {
        push @rest, '"sampling_params":{"n":1,"extra_args":'
                    . into(one('', '"a":{"b":[]}'), @members) . '}';

    } elsif ($how == 2 && @members) {
        push @rest, '"vllm_xargs":' . into(one('', '"a":"k"'), @members);

    } elsif ($how == 3 && @members) {
        my $n = int rand 100;
        push @rest, '"x":' . '[{"y":' x $n . into('', @members) . '}]' x $n;

    } else {
        push @rest, @members;
    }

    @rest = map { $_->[1] } sort { $a->[0] <=> $b->[0] } map { [rand, $_] } @rest;

    return blank() . '{' . blank()
           . join(blank() . ',' . blank(), @rest) . blank() . '}' . blank();
}

# damaged JSON, or another encoding: nginx may reject it

sub disguise {
    my ($body) = @_;
    my $how = int rand 20;

    return ($body, 1) if $how > 7;
    return ("\xef\xbb\xbf$body", 0) if $how == 0;
    return (Encode::encode(one(qw(UTF-16 UTF-16LE UTF-16BE UTF-32 UTF-32LE
                                  UTF-32BE)), $body), 0) if $how < 3;
    return ($body . one('x', '{}', "\0", ',', '}'), 0) if $how == 3;
    return (substr($body, 0, -1 - int rand length($body) / 2), 0) if $how == 4;
    return ("[$body]", 0) if $how == 5;
    return (s/"model"/"m":NaN,"model"/r, 0) for grep { $how == 6 } $body;

    substr($body, rand length $body, 1) = chr rand 256;

    return ($body, 0);
}

# a body without its private members, by JSON::PP

sub without {
    no warnings "recursion";
    my ($o, $root) = @_;

    if (ref $o eq 'HASH') {
        delete @$o{@names};
        without($o->{$_}) for grep { !$root || !$content{$_} } keys %$o;

    } elsif (ref $o eq 'ARRAY') {
        without($_) for @$o;
    }

    return $o;
}

my @methods = qw(POST POST POST PUT PATCH GET DELETE OPTIONS QUERY PROPFIND HEAD);
my @types = ('application/json', 'application/grpc', 'application/grpc+json',
             'application/grpc-web+json', 'application/grpc; a=b', 'text/plain',
             'application/vnd.x+json', 'multipart/form-data; boundary=x',
             'application/x-www-form-urlencoded', 'APPLICATION/GRPC+PROTO',
             'application/json; charset=utf-16');
my @paths = qw(v1/chat/completions v1/completions v1/embeddings tokenize
               v1/completions/render vertex_generate generate v1/responses
               inference/v1/generate v1/messages/count_tokens x);

my $json = JSON::PP->new->latin1->canonical->allow_nonref;
my (%got, @wrong);

for my $i (1 .. $requests) {
    my $private = one(0, 0, 1, 1, 1, 1, 2, 3, 8, 16, 17, 200);
    my ($body, $whole) = disguise(body($private));
    my ($where, $method) = (one(@where), one(@methods));
    my $coding = int rand 20;

    my %headers = ('Content-Type' => one(@types),
                   $coding == 0 ? ('Content-Encoding' => 'identity',
                                   'content-encoding' => 'gzip')
                   : $coding == 1 ? ('Content-Encoding' => 'identity') : ());

    my $r = $t->request("$method /$where/" . one(@paths), $body,
                        headers => \%headers,
                        chunked => one(0, 0, 1 + int rand 900));

    $got{$r->{status} // 0}++;

    my $good = $whole && $private <= 16 && $coding != 0;
    my $wrong;

    if ($good && $r->{status} != 200
        || !$good && $r->{status} !~ /^(?:200|4\d\d)$/)
    {
        $wrong = "has status $r->{status}";

    } elsif ($r->{status} != 200 || $method eq 'HEAD' || !$good) {
        # no answer to check

    } elsif (!$private && $where =~ /plain|header|store/) {
        $wrong = 'has changed' if $r->{body} ne $body;

    } else {
        my $want = $json->encode(without($json->decode($body), 1));
        my $have = $json->encode(without($json->decode($r->{body}), 1));

        $wrong = 'is another prompt' if $want ne $have;
    }

    push @wrong, "$i: $method $where, $private: $wrong: $body" if $wrong;
}

diag("requests by status: "
     . join ', ', map { "$_: $got{$_}" } sort keys %got) if $ENV{REQUESTS};

is(-e $bad ? Kvroute::slurp($bad) : '', '', 'no member of a transfer is passed on');
is(scalar(@wrong), 0, 'honest bodies are') or diag(substr($wrong[0], 0, 2000));
cmp_ok($got{200} // 0, '>', $requests / 3, 'most requests are served');

$t->done();
