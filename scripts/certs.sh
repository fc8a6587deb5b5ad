#!/usr/bin/env bash
# Makes the certificates of the tests, with a CA of their own, into a directory. They are valid for 30 days; when all
# are there and good for another day, nothing is done.
# usage: certs.sh DIRECTORY
#
#   ca.pem                the CA that tests trust          ca.key
#   server.pem            localhost, 127.0.0.1, ::1        server.key; server-locked.key (password "secret")
#   server-both.pem       certificate and key in one file
#   other-server.pem      the same names, another key      other-server.key (for reloading)
#   name.pem              name.example, *.wild.example     name.key (for SNI)
#   expired.pem, future.pem, wrong-name.pem, wrong-ip.pem, no-names.pem (CN=localhost alone)
#   self-signed.pem       localhost                        self-signed.key
#   untrusted.pem         localhost, by a CA that nobody trusts (untrusted-ca.pem)
#   chain.pem             localhost and the intermediate CA behind it; truncated.pem: without that; intermediate.pem
#   client.pem            a client's own                   client.key; untrusted-client.pem by the other CA
#   ca.p12                the CA as Java's trust store (password "secret"), where keytool is here
# A key is named like its certificate; chain.pem and truncated.pem have chain.key.
set -eu

out=${1:?usage: certs.sh DIRECTORY}
case $out in /*) ;; *) out=$PWD/$out ;; esac
stamp=$out/made-by
sum=$(cksum <"$0")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ] &&
    openssl x509 -in "$out/server.pem" -noout -checkend 86400 >/dev/null &&
    { [ -f "$out/ca.p12" ] || ! command -v keytool >/dev/null 2>&1; }; then
    exit 0
fi

# Made beside its place and moved there whole, so that nobody meets half of it.
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

printf '%s\n' '[ca]' 'default_ca = test' '[test]' 'database = index.txt' 'rand_serial = yes' 'new_certs_dir = issued' \
    'policy = any' 'default_md = sha256' 'unique_subject = no' 'copy_extensions = none' \
    '[any]' 'commonName = supplied' '[req]' 'distinguished_name = dn' '[dn]' >openssl.cnf
: >index.txt
mkdir issued

day() {
    date -u -d "$1" +%Y%m%d%H%M%SZ
}

key() {
    openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null ||
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"
}

# sign NAME SUBJECT CA EXTENSIONS [FROM TO]: a new key and its certificate. CA "self": signed by itself.
sign() {
    local name=$1 subject=$2 ca=$3 from=${5:-1 day ago} to=${6:-30 days}
    local by=(-cert "$ca.pem" -keyfile "$ca.key")
    [ "$ca" != self ] || by=(-selfsign -keyfile "$name.key")
    [ -f "$name.key" ] || key "$name"
    openssl req -config openssl.cnf -new -key "$name.key" -subj "/CN=$subject" -out "$name.csr"
    openssl ca -config openssl.cnf -batch -notext "${by[@]}" -in "$name.csr" -out "$name.pem" \
        -startdate "$(day "$from")" -enddate "$(day "$to")" -extfile <(printf '%b' "$4") 2>log || {
        cat log >&2
        exit 1
    }
}

authority='basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n'
common='basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nauthorityKeyIdentifier=keyid\n'
server=$common'extendedKeyUsage=serverAuth\nsubjectAltName='
client=$common'extendedKeyUsage=clientAuth\n'
local='DNS:localhost,IP:127.0.0.1,IP:::1\n'

sign ca 'libtws test CA' self "$authority"
sign untrusted-ca 'libtws test CA that nobody trusts' self "$authority"
sign intermediate 'libtws test intermediate CA' ca "$authority"
sign server localhost ca "$server$local"
sign other-server localhost ca "$server$local"
sign name name.example ca "$server"'DNS:name.example,DNS:*.wild.example\n'
sign expired localhost ca "$server$local" '20 days ago' '10 days ago'
sign future localhost ca "$server$local" '10 days' '20 days'
sign wrong-name localhost ca "$server"'DNS:other.example\n'
sign wrong-ip 127.0.0.1 ca "$server"'IP:127.0.0.2\n'
sign no-names localhost ca "$common"'extendedKeyUsage=serverAuth\n'
sign self-signed localhost self "$server$local"
sign untrusted localhost untrusted-ca "$server$local"
sign chain localhost intermediate "$server$local"
cp chain.pem truncated.pem
cat intermediate.pem >>chain.pem
cat server.pem server.key >server-both.pem
sign client 'test client' ca "$client"
sign untrusted-client 'test client' untrusted-ca "$client"
openssl pkey -in server.key -aes256 -passout pass:secret -out server-locked.key
if command -v keytool >/dev/null 2>&1; then
    keytool -importcert -noprompt -trustcacerts -alias ca -file ca.pem -keystore ca.p12 -storetype PKCS12 \
        -storepass secret >log 2>&1 || { cat log >&2; exit 1; }
fi

rm -rf ./*.csr index.txt* openssl.cnf log issued
printf '%s\n' "$sum" >made-by
chmod 755 .
# Another make may have been quicker; whole is whole.
rm -rf "$out.old"
[ ! -e "$out" ] || mv -T "$out" "$out.old"
mv -T "$work" "$out"
rm -rf "$out.old"
