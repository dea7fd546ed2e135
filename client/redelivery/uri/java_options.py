"""Options of the Java clients (ActiveMQ's, Artemis' and Qpid JMS) that have no meaning here, or another name."""

from __future__ import annotations

__all__ = [
    "ARTEMIS_NAMES",
    "COUNTERPARTS",
    "DESTINATION_OPTIONS",
    "JAVA_NAMES",
    "JAVA_PREFIXES",
    "QPID_NAMES",
    "is_artemis",
    "is_java_only",
    "is_qpid_only",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options that Classic's client and its transports document; they have no meaning here.
_JAVA_JMS = _names("""
    alwaysSessionAsync alwaysSyncSend auditDepth auditMaximumProducerNumber checkForDuplicates clientIDPrefix
    closeTimeout connectResponseTimeout connectionIDPrefix consumerExpiryCheckEnabled
    consumerFailoverRedeliveryWaitPeriod copyMessageOnSend disableTimeStampsByDefault dispatchAsync
    exclusiveConsumer maxThreadPoolSize messagePrioritySupported nestedMapAndListEnabled
    objectMessageSerializationDefered optimizeAcknowledge optimizeAcknowledgeTimeOut
    optimizedAckScheduledAckInterval optimizedMessageDispatch producerWindowSize rmIdFromConnectionId
    sendAcksAsync sendTimeout statsEnabled transactedIndividualAck trustAllPackages trustedPackages
    useAsyncSend useBeanNameAsClientIdPrefix useCompression useDedicatedTaskRunner useRetroactiveConsumer
    warnAboutUnstartedConnectionTimeout watchTopicAdvisories xaAckMode
    prefetchPolicy.maximumPendingMessageLimit prefetchPolicy.optimizeDurableTopicPrefetch
    prefetchPolicy.queueBrowserPrefetch redeliveryPolicy.destination redeliveryPolicy.queue
    redeliveryPolicy.tempQueue redeliveryPolicy.tempTopic redeliveryPolicy.topic
""")
_JAVA_TRANSPORT = _names("""
    async brokerConfig closeAsync connectionTimeout create daemon diffServ dynamicManagement
    ioBufferSize jmxPort keepAlive logWriterName marshal minimumVersion minmumWireFormatVersion
    soLinger soTimeout soWriteTimeout socketBufferSize stackSize startLogging tcpNoDelay threadName
    trace trafficClass typeOfService useInactivityMonitor useKeepAlive useLocalHost
    useQueueForAccept waitForStart
""")
_JAVA_FAILOVER = _names("""
    backup backupPoolSize maxCacheSize priorityBackup priorityURIs rebalanceUpdateURIs trackMessages
    trackTransactionProducers updateURIsSupported updateURIsURL
""")
# Options of Artemis' own client (2.40) that have another name or no meaning here.
_ARTEMIS = _names("""
    autoGroup blockOnAcknowledge blockOnDurableSend blockOnNonDurableSend cacheDestinations cacheLargeMessagesClient
    callFailoverTimeout callTimeout clientFailureCheckPeriod compressLargeMessage compressionLevel
    confirmationWindowSize connectionLoadBalancingPolicyClassName connectionTTL connectionTtl consumerMaxRate
    consumerWindowSize dupsOKBatchSize enable1xPrefixes enabledCipherSuites enabledProtocols failoverAttempts
    failoverOnInitialConnection groupID ha initialConnectAttempts initialMessagePacketSize keyStorePassword
    keyStorePath keyStoreProvider keyStoreType maxRetryInterval minLargeMessageSize preAcknowledge producerMaxRate
    producerWindowSize reconnectAttempts retryInterval retryIntervalMultiplier scheduledThreadPoolMaxSize
    sslEnabled tcpReceiveBufferSize tcpSendBufferSize threadPoolMaxSize transactionBatchSize trustAll
    trustStorePassword trustStorePath trustStoreProvider trustStoreType type useEpoll useGlobalPools
    useTopologyForLoadBalancing verifyHost
""")
ARTEMIS_NAMES = {"user": "jms.userName", "password": "jms.password", "clientID": "jms.clientID"}
"""Options of Artemis' own client that have another name here."""
JAVA_PREFIXES = (
    "wireFormat.",
    "socket.",
    "broker.",
    "nested.",
    "amqp.",
    "transport.",
    "jms.blobTransferPolicy.",
)


def is_artemis(name: str) -> bool:
    """True if the option `name`, without `jms.`, is one of Artemis' own client."""
    return name in _ARTEMIS or name in ARTEMIS_NAMES


def is_java_only(name: str, *, failover: bool) -> bool:
    """True if only the Java client has a use for the option `name`. `failover`: it is after `failover:(...)`."""
    if name.startswith("jms.") and name[4:] in _JAVA_JMS:
        return True
    if any(name.startswith(prefix) and len(name) > len(prefix) for prefix in JAVA_PREFIXES):
        return True
    return is_artemis(name) or name in _JAVA_TRANSPORT or (failover and name in _JAVA_FAILOVER)


# Further options that Qpid JMS documents, under `jms.` and `failover.`; an ActiveMQ client refuses them.
_QPID_JMS = _names("""
    awaitClientID connectTimeout deserializationPolicy.allowList deserializationPolicy.denyList forceAsyncAcks
    forceAsyncSend forceSyncSend localMessageExpiry localMessagePriority messageIDPolicy.messageIDType
    populateJMSXUserID presettlePolicy.presettleAll presettlePolicy.presettleConsumers
    presettlePolicy.presettleProducers presettlePolicy.presettleQueueConsumers
    presettlePolicy.presettleQueueProducers presettlePolicy.presettleTopicConsumers
    presettlePolicy.presettleTopicProducers presettlePolicy.presettleTransactedProducers queuePrefix
    receiveLocalOnly receiveNoWaitLocalOnly requestTimeout topicPrefix tracing useDaemonThread
    validatePropertyNames validateSelector
""")
JAVA_NAMES = _JAVA_JMS | _JAVA_TRANSPORT | _JAVA_FAILOVER | _ARTEMIS | ARTEMIS_NAMES.keys() | _QPID_JMS
"""Options of the Java clients by name, without `jms.`."""
QPID_NAMES = {
    "jms.username": "jms.userName",
    "amqp.vhost": "redelivery.virtualHost",
    "failover.nested.amqp.vhost": "redelivery.virtualHost",
}
"""Options of Qpid JMS that have another name here."""
COUNTERPARTS = {
    "amqp.idleTimeout": "redelivery.heartbeat",
    "failover.nested.amqp.idleTimeout": "redelivery.heartbeat",
    "callTimeout": "redelivery.sendTimeout",
    "connectionTTL": "redelivery.heartbeat",
    "consumerWindowSize": "redelivery.credit (messages, not bytes)",
    "initialConnectAttempts": "startupMaxReconnectAttempts of failover:",
    "keyStorePath": "redelivery.tlsCertFile (PEM)",
    "maxRetryInterval": "maxReconnectDelay of failover:",
    "reconnectAttempts": "maxReconnectAttempts of failover:",
    "retryInterval": "initialReconnectDelay of failover:",
    "retryIntervalMultiplier": "backOffMultiplier of failover:",
    "sslEnabled": "the scheme: stomp+ssl:// or amqps://",
    "trustStorePath": "redelivery.tlsCaFile (PEM)",
    "verifyHost": "redelivery.tlsVerify",
    "connectionTimeout": "redelivery.connectTimeout",
    "jms.connectResponseTimeout": "redelivery.connectTimeout",
    "jms.connectTimeout": "redelivery.connectTimeout",
    "jms.sendTimeout": "redelivery.sendTimeout",
    "transport.connectTimeout": "redelivery.connectTimeout",
    "transport.keyStoreLocation": "redelivery.tlsCertFile (PEM)",
    "transport.trustAll": "redelivery.tlsVerify=false",
    "transport.trustStoreLocation": "redelivery.tlsCaFile (PEM)",
    "transport.verifyHost": "redelivery.tlsVerify",
    "socket.verifyHostName": "redelivery.tlsVerify",
    "wireFormat.maxInactivityDuration": "redelivery.heartbeat",
}
"""Our option with the same job, by the name of the Java clients' option."""
DESTINATION_OPTIONS = {
    "consumer.prefetchSize": "jms.prefetchPolicy.all, or listen(credit=...)",
    "consumer.selector": "listen(selector=...)",
    "consumer.exclusive": "it at the broker's queue",
    "consumer.priority": "it at the broker's queue",
    "consumer.dispatchAsync": "nothing: it has no meaning here",
}
"""Options of a destination (`queue?consumer.prefetchSize=1`) in the Java client, and what is written here instead."""


def is_qpid_only(name: str) -> bool:
    """True if only Qpid JMS has a use for the option `name`."""
    nested = name.startswith("failover.nested.") or name == "failover.amqpOpenServerListAction"
    return nested or name in QPID_NAMES or (name.startswith("jms.") and name[4:] in _QPID_JMS)
