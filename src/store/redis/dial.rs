//! How to come by a connection: to one server, to the one that Sentinels name, or to a Cluster.
//!
//! One multiplexed connection (in a Cluster: one per node) carries everything, pushes included (RESP3,
//! Redis 6 and newer): commands of all exchanges are pipelined in it as they come.

use super::address::{Address, Login, Topology};
use super::push::Ear;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, TlsCertificates, TlsMode, Value,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) enum Wire {
    /// To one server.
    Single(MultiplexedConnection),
    /// To a Cluster.
    Cluster(ClusterConnection),
}

impl Wire {
    /// Sends a command and waits for its answer.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Wire::Single(wire) => command.query_async(wire).await,
            Wire::Cluster(wire) => command.query_async(wire).await,
        }
    }

    /// Hears what is published on `channel` from now on, and after a reconnection of the library's. Gives
    /// the command to publish there.
    pub(super) async fn hear(&mut self, channel: &str) -> Result<&'static str, RedisError> {
        match self {
            Wire::Single(wire) => wire.subscribe(channel).await.map(|()| "PUBLISH"),
            Wire::Cluster(wire) => match wire.ssubscribe(channel).await {
                Ok(()) => Ok("SPUBLISH"),
                // Before Redis 7 there are no sharded channels: what is published goes to every node.
                Err(_) => wire.subscribe(channel).await.map(|()| "PUBLISH"),
            },
        }
    }

    /// Whether one broken connection breaks the whole: a Cluster mends its own.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Wire::Single(_))
    }
}

/// Makes connections.
pub(super) struct Dialer {
    pub(super) address: Address,
    pub(super) ear: Arc<Ear>,
    /// How long one command may take.
    pub(super) patience: Duration,
    /// How long a connection may take to be made.
    pub(super) connect_patience: Duration,
}

impl Dialer {
    /// Makes one. The notice is given when it is one to a single server, and closes.
    pub(super) async fn dial(&self) -> Result<(Wire, Arc<Notify>), RedisError> {
        let closed = Arc::default();
        Ok((self.dial_for(&closed).await?, closed))
    }

    async fn dial_for(&self, closed: &Arc<Notify>) -> Result<Wire, RedisError> {
        match &self.address.topology {
            Topology::Single => {
                let address = self.connection_addresses().into_iter().next();
                let address = address.ok_or((ErrorKind::InvalidClientConfig, "no host"))?;
                let info = redis::IntoConnectionInfo::into_connection_info(address)?
                    .set_redis_settings(self.settings());
                let client = match self.certificates()? {
                    Some(certificates) => Client::build_with_tls(info, certificates)?,
                    None => Client::open(info)?,
                };
                let config = self.config(closed);
                Ok(Wire::Single(
                    client.get_multiplexed_async_connection_with_config(&config).await?,
                ))
            }
            Topology::Sentinel(master) => self.ask_sentinels(master, closed).await,
            Topology::Cluster => self.ask_cluster().await,
        }
    }

    async fn ask_cluster(&self) -> Result<Wire, RedisError> {
        let mut builder = ClusterClientBuilder::new(self.connection_addresses())
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(self.connect_patience)
            .response_timeout(self.patience)
            .overall_response_timeout(Some(self.patience))
            .retries(8)
            .max_retry_wait(100)
            .push_sender(self.push_sender(None));
        let Login { username, password } = &self.address.login;
        if let Some(username) = username {
            builder = builder.username(username);
        }
        if let Some(password) = password {
            builder = builder.password(password);
        }
        if self.address.tls {
            builder = builder.tls(TlsMode::Secure);
        }
        if let Some(certificates) = self.certificates()? {
            builder = builder.certs(certificates);
        }
        Ok(Wire::Cluster(builder.build()?.get_async_connection().await?))
    }

    async fn ask_sentinels(&self, master: &str, closed: &Arc<Notify>) -> Result<Wire, RedisError> {
        let sentinels = self.connection_addresses();
        let mut builder =
            SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
                .set_client_to_redis_protocol(ProtocolVersion::RESP3);
        let Login { username, password } = &self.address.login;
        if let Some(username) = username {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_redis_password(password);
        }
        let Login { username, password } = &self.address.sentinel_login;
        if let Some(username) = username {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if self.address.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = self.certificates()? {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
        let mut client = builder.build()?;
        Ok(Wire::Single(client.get_async_connection_with_config(&self.config(closed)).await?))
    }

    fn connection_addresses(&self) -> Vec<ConnectionAddr> {
        let address = |(host, port): &(String, u16)| {
            let (host, port) = (host.clone(), *port);
            if self.address.tls {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        };
        self.address.hosts.iter().map(address).collect()
    }

    fn settings(&self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(self.address.database);
        let Login { username, password } = &self.address.login;
        if let Some(username) = username {
            settings = settings.set_username(username);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        settings
    }

    fn config(&self, closed: &Arc<Notify>) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_patience))
            .set_response_timeout(Some(self.patience))
            .set_push_sender(self.push_sender(Some(closed)))
    }

    fn push_sender(
        &self,
        closed: Option<&Arc<Notify>>,
    ) -> impl Fn(PushInfo) -> Result<(), std::convert::Infallible> + use<> {
        let (ear, closed) = (Arc::clone(&self.ear), closed.cloned());
        move |info: PushInfo| {
            if let (PushKind::Disconnection, Some(closed)) = (&info.kind, &closed) {
                closed.notify_one();
            }
            ear.hear(&info);
            Ok(())
        }
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, RedisError> {
        let Some(file) = self.address.ca_file.as_ref().filter(|_| self.address.tls) else {
            return Ok(None);
        };
        Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(std::fs::read(file)?) }))
    }
}
