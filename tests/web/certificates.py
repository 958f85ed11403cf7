"""A certificate authority of our own, and its certificates."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

PrivateKey = ec.EllipticCurvePrivateKey


class Authority(NamedTuple):
    """The files of an authority, and of its certificate for a name and this machine."""

    ca: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Those of `serve`."""
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def new_authority(folder: Path, name: str, *addresses: str) -> Authority:
    """One that is good for a day; it has signed for other addresses, too."""
    now = datetime.datetime.now(datetime.UTC)
    numbers = ("127.0.0.1", "::1", *addresses)
    names = [x509.DNSName(name), *(x509.IPAddress(ip_address(it)) for it in numbers)]

    def signed(
        subject: str,
        key: ec.EllipticCurvePrivateKey,
        by: ec.EllipticCurvePrivateKey,
        *,
        is_ca: bool,
    ) -> bytes:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the made-up authority")])
        itself = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        made = (
            x509.CertificateBuilder(
                issuer, issuer if is_ca else itself, key.public_key(), 1 + is_ca
            )
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(by, hashes.SHA256())
        )
        return made.public_bytes(Encoding.PEM)

    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made = Authority(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    made.ca.write_bytes(signed("root", root, root, is_ca=True))
    made.certificate.write_bytes(signed(name, own, root, is_ca=False))
    made.key.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made
